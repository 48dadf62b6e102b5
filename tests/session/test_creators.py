"""Session creators: what a worker waits for, how long, and what it says meanwhile."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import runhooks as rh
from runhooks.testing import FakeClock


class Waits:
    """Stands for a request to stop: a wait lets a fake clock go on, and calls ``each``."""

    reason = None

    def __init__(self, clock, each):
        self.clock, self.each = clock, each

    def wait(self, secs):
        assert 0 < secs <= 5
        self.clock.advance(secs)
        self.each(self.clock.monotonic())


@pytest.fixture
def worker():
    """Makes a creator for a worker whose waits take no time; ``each(time)`` is called in them."""
    with FakeClock() as clock:

        def worker(each=lambda time: None, **arguments):
            creator = rh.WorkerSessionCreator(**arguments)
            creator.stop_request = Waits(clock, each)
            return creator

        yield worker


@pytest.fixture
def said(caplog):
    """What was logged of waiting, as pairs of level and message."""
    caplog.set_level(logging.INFO, logger="runhooks")

    def said():
        found = [(record.levelname, record.getMessage()) for record in caplog.records]
        return [(level, message) for level, message in found if "waiting for" in message]

    return said


def save(model, directory):
    with rh.MonitoredTrainingSession(checkpoint_dir=directory) as chief:
        chief.run(model.train_op)


def ready_op(answers):
    """A tensor that is the next of ``answers`` in each new session."""
    answers = iter(answers)
    return rh.inputs(lambda step: [next(answers)], name="ready")


# waiting for a checkpoint


def test_worker_begins_as_soon_as_the_chief_has_saved(model, worker, tmp_path):
    def each(time):
        if time > 70 and not rh.latest_checkpoint(tmp_path):
            save(model, tmp_path)

    with worker(each, checkpoint_dir=tmp_path).create_session() as session:
        assert session.global_step == 1


def test_worker_says_whom_it_waits_for_where_and_how_long_at_first_and_each_minute(
    model, worker, said, tmp_path
):
    with pytest.raises(rh.errors.DeadlineExceededError):
        worker(checkpoint_dir=tmp_path, max_wait_secs=150).create_session()
    levels, messages = zip(*said(), strict=True)
    assert levels == ("INFO", "WARNING", "WARNING")
    for message, secs in zip(messages, (0, 60, 120), strict=True):
        who, waited = re.fullmatch(r"waiting for (.*), (\d+) of 150 seconds: .*", message).groups()
        assert "is_chief=True" in who
        assert str(tmp_path) in who
        assert secs <= int(waited) <= secs + 5


def test_worker_gives_up_at_its_limit_saying_what_was_lacking(model, worker, tmp_path):
    times = []
    with pytest.raises(rh.errors.DeadlineExceededError) as caught:
        worker(times.append, checkpoint_dir=tmp_path, max_wait_secs=150).create_session()
    assert times[-1] == 150
    assert caught.value.path == str(tmp_path)
    for words in ("waited 150 seconds", "is_chief=True", str(tmp_path), "max_wait_secs=150"):
        assert words in str(caught.value)


# waiting until the session is ready


@pytest.mark.parametrize("argument", ["ready_op", "ready_for_local_init_op"])
def test_worker_tries_again_until_the_session_is_ready(model, worker, said, argument):
    scaffold = rh.Scaffold(**{argument: ready_op([["weights"], ["weights"], []])})
    with worker(scaffold=scaffold).create_session() as session:
        assert session.run(model.loss) == 0
    ((level, message),) = said()
    assert level == "INFO"
    assert argument in message
    assert "weights" in message


def test_sessions_that_were_not_ready_are_closed_before_the_next_is_made(model, worker):
    made = []

    def init_fn(scaffold, session):
        for before in made:
            with pytest.raises(RuntimeError, match="closed"):
                before.run(model.loss)
        made.append(session)

    scaffold = rh.Scaffold(init_fn=init_fn, ready_op=ready_op([["weights"], ["weights"], []]))
    with worker(scaffold=scaffold).create_session() as session:
        assert made[2:] == [session]


def test_worker_waits_for_a_session_that_says_itself_that_it_is_not_ready(model, worker):
    def not_yet(step):
        for error in errors:
            raise error
        yield []

    errors = iter([rh.errors.FailedPreconditionError("no table yet")])
    scaffold = rh.Scaffold(ready_op=rh.inputs(not_yet))
    with worker(scaffold=scaffold).create_session() as session:
        assert session.global_step == 0


def test_worker_looks_at_the_newest_checkpoint_each_time(model, worker, tmp_path):
    save(model, tmp_path)
    saved = []

    def each(time):
        if not saved:
            saved.append(save(model, tmp_path))

    ready = rh.call(lambda step: step >= 2, model.global_step)
    scaffold = rh.Scaffold(ready_op=ready)
    creator = worker(each, scaffold=scaffold, checkpoint_dir=tmp_path)
    with creator.create_session() as session:
        assert session.global_step == 2


# stopping meanwhile


def test_request_to_stop_ends_the_wait_of_a_worker_that_is_recovered(model, tmp_path):
    save(model, tmp_path / "a")
    sess = rh.MonitoredTrainingSession(is_chief=False, checkpoint_dir=tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    timer = threading.Timer(0.1, sess.request_stop, ["enough"])
    timer.start()
    with pytest.raises(rh.errors.DeadlineExceededError, match="enough"), sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    timer.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_acts_at_once_while_a_worker_waits(number, tmp_path):
    script = f"""
import logging, sys
import runhooks as rh
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
rh.MonitoredTrainingSession(is_chief=False, checkpoint_dir={str(tmp_path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=-1, stderr=-1, text=True) as child:
        assert "waiting for the chief" in child.stdout.readline()
        os.kill(child.pid, number)
        _, stderr = child.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert child.returncode == -number
    else:
        assert "KeyboardInterrupt" in stderr
