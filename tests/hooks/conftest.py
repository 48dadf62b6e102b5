"""Sessions with hooks, and a look at what these have written."""

from __future__ import annotations

import pytest

import runhooks as rh
from runhooks.contract import SessionRunContext
from runhooks.testing import FakeClock
from tests.event_files import events_in


@pytest.fixture(autouse=True)
def _close_writers():
    yield
    rh.summary.FileWriterCache.clear()


@pytest.fixture
def fake_clock():
    with FakeClock(start=100.0) as fake:
        yield fake


@pytest.fixture
def written(tmp_path):
    """Reads all events of a directory, the test's by default, session logs and graphs too."""

    def written(folder=tmp_path):
        files = sorted(folder.glob("*.tfevents.*"))
        return [event for file in files for event in events_in(file)]

    return written


@pytest.fixture
def session_logs(written):
    """Reads what the event files say of sessions, as ``(step, SessionLog)``."""

    def session_logs():
        logs = [event for event in written() if event.session_log]
        return [(log.step, rh.summary.SessionLog.FromString(log.session_log)) for log in logs]

    return session_logs


@pytest.fixture
def train(model):
    """Makes steps under hooks until one asks to stop, ``steps`` at most; the last global step."""

    def train(*hooks, steps=1_000, **session_arguments):
        with rh.SingularMonitoredSession(hooks=list(hooks), **session_arguments) as sess:
            while not sess.should_stop() and steps > 0:
                sess.run(model.train_op)
                steps -= 1
            return sess.global_step

    return train


class EveryRun:
    """A session that calls a hook in every run, as those do that do not ask when it is due."""

    def __init__(self, raw, hook):
        self.raw, self.hook = raw, hook

    def run(self, fetches):
        context = SessionRunContext(rh.SessionRunArgs(fetches), self.raw)
        asked = self.hook.before_run(context)
        results = self.raw.run([fetches, [] if asked is None else asked.fetches])
        values = rh.SessionRunValues(None if asked is None else results[1])
        self.hook.after_run(context, values)
        return results[0]


@pytest.fixture
def every_run(graph):
    """Starts a hook in a session that calls it in every run."""

    def start(hook):
        hook.begin()
        raw = rh.Session()
        hook.after_create_session(raw, rh.Coordinator())
        return EveryRun(raw, hook)

    return start


@pytest.fixture
def without_global_step(engine):
    with rh.Graph(engine=engine).as_default() as graph:
        yield graph
