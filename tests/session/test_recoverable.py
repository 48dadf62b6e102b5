"""Recovery: how often, how fast, how long, what is said of it, and what ends it."""

import gc
import logging
import os
import re
import signal
import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

import runhooks as rh
from runhooks.contract import StopRequest
from runhooks.testing import FakeClock

AWAY = "the data server is away"


class Server:
    """A source of the number 1 that is away for the draws in ``away``, counted from 1."""

    def __init__(self, away=(), on_draw=lambda draw: None):
        self.away, self.on_draw, self.draws = away, on_draw, 0

    def __call__(self, step):
        while True:
            self.draws += 1
            self.on_draw(self.draws)
            if self.draws in self.away:
                raise rh.errors.UnavailableError(f"{AWAY} ({self.draws})")
            yield 1


def train_op(server):
    step = rh.train.get_or_create_global_step()
    return rh.group(rh.inputs(server, name="batch"), step.assign_add(1))


ALWAYS = range(1, 1_000)


# the policy


def test_waits_between_attempts_grow_to_a_limit():
    policy = rh.RecoveryPolicy(first_wait_secs=1, longest_wait_secs=5)
    assert [policy.wait_secs(failure) for failure in range(1, 7)] == [0, 1, 2, 4, 5, 5]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("failures", -1, ValueError),
        ("failures", 2.5, TypeError),
        ("first_wait_secs", -0.1, ValueError),
        ("longest_wait_secs", float("inf"), ValueError),
        ("longest_wait_secs", float("nan"), ValueError),
        ("limit_secs", None, TypeError),
        ("limit_secs", -1, ValueError),
    ],
)
def test_policy_names_what_is_wrong(name, value, error):
    with pytest.raises(error, match=rf"{name}.*{value}"):
        rh.RecoveryPolicy(**{name: value})


# its limits


def test_so_many_failures_in_a_row_and_no_more(graph):
    op = train_op(server := Server(ALWAYS))
    policy = rh.RecoveryPolicy(failures=3, first_wait_secs=0)
    with pytest.raises(rh.errors.UnavailableError, match=r"away \(4\)") as caught:
        with rh.MonitoredSession(recovery=policy) as sess:
            sess.run(op)
    assert server.draws == 4
    (note,) = [note for note in caught.value.__notes__ if "giving up" in note]
    assert "lost 4 times" in note
    assert "RecoveryPolicy" in note


def test_a_further_step_begins_a_new_row(graph, tmp_path):
    op = train_op(Server([2, 3, 5, 6, 8, 9]))
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path,
        save_checkpoint_steps=1,
        recovery=rh.RecoveryPolicy(failures=2, first_wait_secs=0),
    ) as sess:
        for _ in range(4):
            sess.run(op)
        assert (sess.global_step, sess.recoveries) == (4, 6)


def test_a_step_made_again_is_no_further_step(graph):
    # Without a checkpoint the first step is made again and again, and nothing is gained by it.
    op = train_op(server := Server(range(2, 1_000, 2)))
    with pytest.raises(rh.errors.UnavailableError):
        with rh.MonitoredSession(recovery=rh.RecoveryPolicy(failures=3, first_wait_secs=0)) as sess:
            while True:
                sess.run(op)
    assert server.draws == 8


@pytest.mark.parametrize(("secs_a_draw", "draws"), [(40, 4), (100, 3), (101, 2)])
def test_limit_in_time_counts_from_the_first_failure_in_a_row(graph, secs_a_draw, draws):
    with FakeClock() as clock:
        op = train_op(server := Server(ALWAYS, on_draw=lambda draw: clock.advance(secs_a_draw)))
        policy = rh.RecoveryPolicy(failures=100, first_wait_secs=0, limit_secs=100)
        with pytest.raises(rh.errors.UnavailableError) as caught:
            with rh.MonitoredSession(recovery=policy) as sess:
                sess.run(op)
    assert server.draws == draws
    assert any(f"in {(draws - 1) * secs_a_draw} seconds" in note for note in caught.value.__notes__)


def test_last_wait_ends_where_the_limit_is(graph, monkeypatch):
    def wait(stop, secs):
        waits.append(secs)
        clock.advance(secs)

    waits = []
    monkeypatch.setattr(StopRequest, "wait", wait)
    policy = rh.RecoveryPolicy(first_wait_secs=1e6, longest_wait_secs=1e6, limit_secs=100)
    with FakeClock() as clock:
        op = train_op(Server(ALWAYS, on_draw=lambda draw: clock.advance(1)))
        with pytest.raises(rh.errors.UnavailableError):
            with rh.MonitoredSession(recovery=policy) as sess:
                sess.run(op)
    assert waits == [0, 99]  # then the last attempt


def test_a_limit_in_time_is_left_behind_with_a_further_step(graph, tmp_path):
    with FakeClock() as clock:
        op = train_op(Server([2, 4, 6], on_draw=lambda draw: clock.advance(60)))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            save_checkpoint_steps=1,
            recovery=rh.RecoveryPolicy(limit_secs=100),
        ) as sess:
            for _ in range(4):
                sess.run(op)
            assert sess.recoveries == 3


def test_error_of_a_session_that_is_not_recovered_has_no_note_about_limits(model):
    with pytest.raises(rh.errors.AbortedError) as caught:
        with rh.SingularMonitoredSession() as sess:
            model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
    assert not any("giving up" in note for note in getattr(caught.value, "__notes__", ()))


class Machines(rh.SessionCreator):
    """Creates sessions, but for the attempts in ``away``, counted from 1."""

    def __init__(self, away):
        self.away, self.attempts = away, 0

    def create_session(self):
        self.attempts += 1
        if self.attempts in self.away:
            raise rh.errors.UnavailableError("no machine to be had")
        return rh.ChiefSessionCreator().create_session()


def test_last_error_names_the_one_that_began_it(model):
    creator = Machines(away=range(2, 1_000))
    policy = rh.RecoveryPolicy(failures=2, first_wait_secs=0)
    with pytest.raises(rh.errors.UnavailableError, match="no machine") as caught:
        with rh.MonitoredSession(creator, recovery=policy) as sess:
            sess.run(model.train_op)
            model.faults.fail(rh.errors.AbortedError("the power went"))
            sess.run(model.train_op)
    (note,) = [note for note in caught.value.__notes__ if "giving up" in note]
    assert "the session was lost by AbortedError('the power went')" in note


# a stop ends a wait


LONG = rh.RecoveryPolicy(first_wait_secs=3600, longest_wait_secs=3600)


@contextmanager
def when_it_waits(stop):
    """Call ``stop`` in another thread when a session has said that it waits."""

    class Listener(logging.Handler):
        def emit(self, record):
            if "replacing the lost session in" in record.getMessage():
                threads.append(threading.Thread(target=stop))
                threads[-1].start()

    logger, listener, threads = logging.getLogger("runhooks"), Listener(), []
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before)
    (thread,) = threads
    thread.join()


def lost_until_stopped(server, op, sess, stop):
    """Runs in a session that waits for an hour, unless ``stop``, called in that wait, is heard."""
    with when_it_waits(stop), pytest.raises(rh.errors.UnavailableError) as caught, sess:
        sess.run(op)
    return caught.value


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_wait_and_one_more_attempt_is_made(graph, number):
    op = train_op(server := Server(ALWAYS))
    sess = rh.MonitoredSession(recovery=LONG)
    error = lost_until_stopped(server, op, sess, lambda: os.kill(os.getpid(), number))
    assert server.draws == 3
    assert sess.stop_reason == number.name
    assert AWAY in str(error)
    assert any(f"giving up ({number.name})" in note for note in error.__notes__)


def test_attempt_after_a_stop_may_succeed_and_the_loop_ends_well(graph, tmp_path):
    op = train_op(server := Server([2, 3]))
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, save_checkpoint_steps=1, recovery=LONG
    ) as sess:
        sess.run(op)
        with when_it_waits(sess.request_stop):
            sess.run(op)
        assert sess.should_stop()
        assert sess.global_step == 2
    assert server.draws == 4
    assert rh.latest_checkpoint(tmp_path).endswith("-2")


def test_session_lost_in_the_last_step_after_a_stop_has_one_attempt(graph):
    op = train_op(server := Server(ALWAYS))
    with pytest.raises(rh.errors.UnavailableError):
        with rh.MonitoredSession(recovery=LONG) as sess:
            sess.request_stop("enough")
            sess.run(op)
    assert server.draws == 2


def test_second_ctrl_c_interrupts_the_wait(graph):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    op = train_op(Server(ALWAYS, on_draw=lambda draw: draw == 3 and twice()))
    sess = rh.MonitoredSession(recovery=rh.RecoveryPolicy(first_wait_secs=0))
    with pytest.raises(KeyboardInterrupt), sess:
        sess.run(op)


# what is said of it


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_each_recovery_is_logged_once_with_cause_and_steps(model, tmp_path, caplog):
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=4) as sess:
        for _ in range(7):
            sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("the power went"))
        sess.run(model.train_op)
    of_data, warning = warnings(caplog)
    assert re.search(r"'batch'.* skips elements: 4 .* given 7", of_data)
    assert re.search(r"lost at step 7.*from step 4.* 3 steps", warning)
    assert "AbortedError('the power went')" in warning


def test_session_lost_at_the_start_and_one_without_steps_are_logged_too(graph, caplog):
    number = rh.inputs(Server([2]))
    hook = Broken(rh.errors.AbortedError("lost early"))
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(number)
        sess.run(number)
        assert sess.recoveries == 2
    first, second = warnings(caplog)
    assert "lost early" in first
    assert AWAY in second


@pytest.mark.every_engine
def test_what_is_logged_keeps_no_lost_session_alive(model, caplog):
    caplog.set_level(logging.INFO, logger="runhooks")
    lost = []

    def step_fn(step_context):
        lost.append(weakref.ref(step_context.session))
        step_context.run_with_hooks(model.train_op)

    with rh.MonitoredSession(recovery=rh.RecoveryPolicy(first_wait_secs=0)) as sess:
        model.faults.fail(rh.errors.AbortedError("the power went"))
        sess.run_step_fn(step_fn)
        gc.collect()
        assert "the power went" in caplog.text
        assert lost[0]() is None


def test_thread_that_finds_the_session_lost_is_told_of_once(model, caplog):
    class Starter(rh.SessionRunHook):
        coord = None

        def after_create_session(self, session, coord):
            if self.coord is None:
                coord.request_stop(rh.errors.AbortedError("the queue is gone"))
            self.coord = coord

    with rh.MonitoredSession(hooks=[Starter()]) as sess:
        while sess.global_step < 2:
            assert not sess.should_stop()
            sess.run(model.train_op)
        assert sess.recoveries == 1
    (warning,) = warnings(caplog)
    assert "the queue is gone" in warning


class Broken(rh.SessionRunHook):
    """Raises ``errors``, one each time a session is created, until there are no more."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def after_create_session(self, session, coord):
        if self.errors:
            raise self.errors.pop(0)


# hooks go back with the session


class Patience(rh.SessionRunHook):
    """Counts runs, in a list that it goes on using."""

    def __init__(self):
        self.seen, self.loaded = [], 0

    def begin(self):
        self.seen = ["begun"]

    def after_run(self, run_context, run_values):
        self.seen.append(run_context.session.global_step)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.loaded += 1
        self.seen = state["seen"]


def test_recovery_that_restores_nothing_gives_hooks_the_state_they_began_with(model):
    hook = Patience()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        assert hook.loaded == 0
        for _ in range(2):
            sess.run(model.train_op)
            sess.run(model.train_op)
            model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
            assert hook.seen == ["begun", 1]
            sess.run(model.train_op)


def test_recovery_that_restores_gives_hooks_the_state_of_the_checkpoint_alone(model, tmp_path):
    hook = Patience()
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, save_checkpoint_steps=2, hooks=[hook]
    ) as sess:
        for _ in range(3):
            sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
        assert hook.seen == ["begun", 1, 2, 3]
    assert hook.loaded == 1


def test_guest_goes_back_with_the_session_too(model):
    guest = Patience()
    with rh.MonitoredSession() as sess:
        for _ in range(2):
            sess.run(model.train_op, hooks=[guest])
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op, hooks=[guest])
    assert guest.seen == ["begun", 1]


def test_hook_that_has_no_state_before_its_session_is_left_alone(model):
    class Late(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            self.count = 0

        def after_run(self, run_context, run_values):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

    hook = Late()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert hook.count == 1


# local variables


@pytest.mark.every_engine
def test_local_variables_are_not_saved_and_begin_anew_in_each_session(graph, model, tmp_path):
    local = rh.Variable(np.float32(7), name="seen", collections=[rh.GraphKeys.LOCAL_VARIABLES])
    both = rh.group(model.train_op, local.assign_add(np.float32(1)))

    def train(steps, fault=None):
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=1
        ) as session:
            for _ in range(steps):
                session.run(both)
            if fault is not None:
                model.faults.fail(fault)
                session.run(both)
            return float(session.run(local, hooks=False)), session.global_step

    assert train(2) == (9, 2)
    assert train(1) == (8, 3)
    assert train(2, rh.errors.AbortedError("lost")) == (8, 6)
