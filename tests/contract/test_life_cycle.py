"""LIFE_CYCLE is the one statement of who is called when: here it is held against sessions."""

from collections.abc import Callable

import pytest

import runhooks as rh
from runhooks.contract import LIFE_CYCLE
from runhooks.testing import RecordingHook

LINES = {words[0]: words[1:] for words in map(str.split, LIFE_CYCLE.strip().splitlines())}
SCENARIOS: dict[str, Callable] = {}


class LateHook(RecordingHook):
    last = True


class RecordingCreator(rh.SessionCreator):
    def __init__(self, calls):
        self.calls = calls

    def create_session(self):
        session = rh.ChiefSessionCreator().create_session()
        self.calls.append("create-session")
        return session


class Recorded:
    """A session over the model of the test, with everything that happens to it in ``calls``."""

    def __init__(self, model):
        self.model = model
        self.calls = []

    def open(self):
        # The one that comes last is given first.
        hooks = [LateHook("c", self.calls), *(RecordingHook(name, self.calls) for name in "ab")]
        self.session = rh.MonitoredSession(RecordingCreator(self.calls), hooks)

    def run(self):
        self.session.run(self.model.train_op)

    def run_that_raises(self, error):
        self.model.faults.fail(error)
        with pytest.raises(type(error)):
            self.run()


@pytest.fixture
def recorded(model, monkeypatch):
    recorded = Recorded(model)

    def record(cls, method, happening):
        original = getattr(cls, method)

        def wrapped(self, *args, **kwargs):
            if method != "finalize" or not self.finalized:
                recorded.calls.append(happening)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(cls, method, wrapped)

    record(rh.Graph, "finalize", "finalize-graph")
    record(rh.Session, "run", "session-run")
    record(rh.Session, "close", "close-session")
    yield recorded
    recorded.session.close()


def scenario(line):
    return lambda play: SCENARIOS.setdefault(line, play)


@scenario("open")
def play_open(recorded):
    recorded.calls.clear()
    recorded.open()


@scenario("run")
def play_run(recorded):
    recorded.open()
    recorded.calls.clear()
    recorded.run()


@scenario("run-raises")
def play_run_raises(recorded):
    recorded.open()
    recorded.calls.clear()
    recorded.run_that_raises(ValueError("a bad batch"))


@scenario("lost")
def play_lost(recorded):
    recorded.open()
    recorded.calls.clear()
    recorded.model.faults.fail(rh.errors.AbortedError("the session is lost"))
    recorded.run()


@scenario("close")
def play_close(recorded):
    recorded.open()
    recorded.calls.clear()
    recorded.session.close()


@scenario("failed")
def play_failed(recorded):
    recorded.open()
    with pytest.raises(ZeroDivisionError), recorded.session:
        recorded.calls.clear()
        raise ZeroDivisionError


def expanded(words):
    for word in words:
        if word.startswith("each:"):
            yield from ((hook, word.removeprefix("each:")) for hook in "abc")
        else:
            yield word


def test_every_line_of_the_life_cycle_is_played():
    assert SCENARIOS.keys() == LINES.keys()


@pytest.mark.parametrize("line", LINES)
def test_session_calls_what_the_life_cycle_says(line, recorded):
    SCENARIOS[line](recorded)
    assert recorded.calls == list(expanded(LINES[line]))


@pytest.mark.parametrize("end_of_input", [rh.errors.OutOfRangeError("end"), StopIteration()])
def test_end_of_the_input_closes_as_close_does(end_of_input, recorded):
    recorded.open()
    with recorded.session:
        recorded.calls.clear()
        raise end_of_input
    assert recorded.calls == list(expanded(LINES["close"]))
