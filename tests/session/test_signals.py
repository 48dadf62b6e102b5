"""SIGTERM and Ctrl-C, as the users of monitored sessions meet them."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(autouse=True)
def _default_handlers():
    """Whatever a test leaves behind, the handlers of before come back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


def handlers():
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.fixture
def train_op(graph):
    """One step; ``signals[n]`` is sent in the middle of the n-th, counted from 1."""
    signals = {}

    def draw(step):
        while True:
            step += 1
            if step in signals:
                send(signals.pop(step))
            yield step

    op = rh.group(rh.inputs(draw), rh.train.get_or_create_global_step().assign_add(1))
    return op, signals


def saved_step(directory):
    return checkpoint_step(rh.latest_checkpoint(directory))


def train_to_a_failing_draw(directory, number, also=None):
    """A training whose source fails in the draw of the third step, after it was sent a signal."""

    def draw(step):
        while True:
            step += 1
            if step == 3 and number is not None:
                send(number)
            if step == 3:
                raise RuntimeError("a worker is gone")
            yield step

    op = rh.group(
        *([] if also is None else [rh.inputs(also)]),
        rh.inputs(draw, name="numbers"),
        rh.train.get_or_create_global_step().assign_add(1),
    )
    with rh.MonitoredTrainingSession(checkpoint_dir=directory) as sess:
        while not sess.should_stop():
            sess.run(op)
    return sess


@pytest.mark.parametrize("number", SIGNALS)
def test_an_input_that_fails_because_of_a_signal_ends_the_loop_well(
    graph, tmp_path, number, caplog
):
    sess = train_to_a_failing_draw(tmp_path, number)
    assert saved_step(tmp_path) == 2
    assert sess.stop_reason == number.name
    assert f"after {number.name}, an input has failed: RuntimeError('a worker" in caplog.text


def test_an_input_that_fails_without_a_signal_is_an_error(graph, tmp_path):
    with pytest.raises(RuntimeError, match="a worker is gone"):
        train_to_a_failing_draw(tmp_path, None)


def test_an_input_that_fails_after_another_has_moved_is_an_error(graph, tmp_path):
    with pytest.raises(RuntimeError, match="a worker is gone"):
        train_to_a_failing_draw(tmp_path, signal.SIGTERM, also=[1, 2, 3, 4])
    assert saved_step(tmp_path) == 0


@pytest.mark.parametrize("ends", ["after the signal", "while it is handled"])
def test_a_handler_that_raises_because_a_child_has_ended_does_not_break_the_step(
    graph, ends, monkeypatch, tmp_path
):
    def raise_error(number, frame):
        raise RuntimeError("a worker is gone")

    def work(step):
        if int(step) == 2:
            if ends == "while it is handled":
                monkeypatch.setattr(signal, "getsignal", get_later)
            send(signal.SIGTERM)
            send(signal.SIGCHLD)
        return step

    def get_later(number):  # the first call lasts until the child has ended
        monkeypatch.undo()
        send(signal.SIGCHLD)
        return signal.getsignal(number)

    before = signal.signal(signal.SIGCHLD, raise_error)
    try:
        step = rh.train.get_or_create_global_step()
        op = rh.group(rh.call(work, step), step.assign_add(1))
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
            while not sess.should_stop():
                sess.run(op)
        assert signal.getsignal(signal.SIGCHLD) is raise_error
        assert saved_step(tmp_path) == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


# loops


@pytest.mark.parametrize("number", SIGNALS)
def test_loop_that_tests_should_stop_ends_after_the_running_step(train_op, tmp_path, number):
    op, signals = train_op
    signals[3] = number
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
        while not sess.should_stop():
            sess.run(op)
    assert saved_step(tmp_path) == 3
    assert sess.stop_reason == number.name


@pytest.mark.parametrize("number", SIGNALS)
def test_loop_that_never_tests_should_stop_is_ended_one_run_later(train_op, tmp_path, number):
    op, signals = train_op
    signals[3] = number
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
        for _ in range(100):
            sess.run(op)
        pytest.fail("the loop went on")
    assert saved_step(tmp_path) == 4
    assert sess.stop_reason == number.name


def test_the_second_ctrl_c_stops_now(train_op, tmp_path):
    op, signals = train_op
    hooks = [rh.CheckpointSaverHook(tmp_path, save_steps=2)]
    session = rh.MonitoredTrainingSession(hooks=hooks)
    with pytest.raises(KeyboardInterrupt), session as sess:
        for _ in range(3):
            sess.run(op)
        send(signal.SIGINT)
        signals[4] = signal.SIGINT
        sess.run(op)
        pytest.fail("the second Ctrl-C came too late")
    assert saved_step(tmp_path) == 2


def test_ctrl_c_after_sigterm_is_the_first(train_op, tmp_path):
    op, signals = train_op
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
        send(signal.SIGTERM)
        signals[1] = signal.SIGINT
        sess.run(op)
        assert sess.should_stop()
    assert saved_step(tmp_path) == 1


def test_the_error_that_ends_such_a_loop_names_the_signal(train_op):
    op, _ = train_op
    # Not in a with block, which would swallow it.
    with contextlib.closing(rh.MonitoredSession()) as sess:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        sess.run(op)
        with pytest.raises(rh.errors.OutOfRangeError, match=r"SIGTERM.* should_stop\(\)"):
            sess.run(op)
        with pytest.raises(rh.errors.OutOfRangeError):
            sess.run(op)
        assert sess.global_step == 1


def test_runs_without_hooks_beside_those_of_the_loop_go_on_after_a_signal(train_op):
    op, _ = train_op
    with contextlib.closing(rh.MonitoredSession()) as sess:
        sess.run(op)
        send(signal.SIGTERM)
        for _ in range(3):
            sess.run(op, hooks=False)
        assert sess.global_step == 4


def test_loop_over_step_functions_is_ended_too(train_op):
    op, _ = train_op
    with rh.MonitoredSession() as sess:
        send(signal.SIGTERM)
        for _ in range(100):
            sess.run_step_fn(lambda step_context: step_context.run_with_hooks(op))
        pytest.fail("the loop went on")
    assert sess.stop_reason == "SIGTERM"


def test_several_runs_between_two_tests_are_all_made(train_op):
    op, signals = train_op
    signals[4] = signal.SIGTERM
    made = []
    with rh.MonitoredSession() as sess:
        while not sess.should_stop():
            for _ in range(3):
                sess.run(op)
                made.append(sess.global_step)
    assert made == [1, 2, 3, 4, 5, 6]


def test_request_stop_refuses_no_run(train_op):
    op, _ = train_op
    with contextlib.closing(rh.MonitoredSession()) as sess:
        sess.request_stop("enough")
        for _ in range(3):
            sess.run(op)
        assert sess.global_step == 3


# the end


class Sends(rh.CheckpointSaverListener):
    """Sends a signal in the middle of the last save."""

    def __init__(self, number):
        self.number = number

    def before_save(self, session, global_step_value):
        if global_step_value > 0:
            send(self.number)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_the_last_checkpoint_is_saved_lets_it_be_saved(train_op, tmp_path, number):
    op, _ = train_op
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=100, listeners=[Sends(number)])
    with rh.MonitoredSession(hooks=[hook, rh.StopAtStepHook(last_step=2)]) as sess:
        while not sess.should_stop():
            sess.run(op)
    assert saved_step(tmp_path) == 2
    assert sess.stop_reason == "StopAtStepHook"


# handlers


def test_session_that_is_dropped_gives_the_handlers_back(train_op, graph):
    op, _ = train_op
    before = handlers()
    gc.disable()  # it needs no collector: nothing refers to itself
    try:
        sess = rh.MonitoredSession(hooks=[rh.StepCounterHook()])
        sess.run(op)
        del sess
        assert handlers() == before
    finally:
        gc.enable()
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    assert not graph.finalized


def test_session_that_is_dropped_under_another_leaves_that_one_alone(graph):
    before = handlers()
    dropped = rh.MonitoredSession()
    with rh.MonitoredSession() as sess:
        del dropped
        send(signal.SIGTERM)
        assert sess.should_stop()
    assert handlers() == before


def test_sessions_in_one_another_are_all_told(graph, train_op):
    with rh.MonitoredSession() as outer, rh.MonitoredSession() as inner:
        send(signal.SIGTERM)
        assert inner.should_stop()
        assert outer.should_stop()


def test_handler_of_the_user_is_called_as_well_and_comes_back(graph):
    calls = []

    def users(number, frame):
        calls.append(number)

    signal.signal(signal.SIGTERM, users)
    with rh.MonitoredSession() as sess:
        send(signal.SIGTERM)
        assert sess.should_stop()
    assert calls == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is users


def test_signal_that_the_process_ignores_stays_ignored(graph):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with rh.MonitoredSession() as sess:
        send(signal.SIGINT)
        assert not sess.should_stop()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_handler_that_is_set_inside_is_not_thrown_away(graph):
    def later(number, frame): ...

    with rh.MonitoredSession():
        signal.signal(signal.SIGTERM, later)
    assert handlers() == [later, signal.default_int_handler]


def test_sessions_may_be_closed_in_any_order(graph):
    before = handlers()
    first, second = rh.MonitoredSession(), rh.MonitoredSession()
    first.close()
    send(signal.SIGTERM)
    assert second.stop_reason == "SIGTERM"
    second.close()
    assert handlers() == before


@pytest.mark.parametrize("number", SIGNALS)
def test_handler_of_a_closed_session_that_somebody_kept_hands_on(graph, number):
    calls = []
    signal.signal(number, lambda number, frame: calls.append(number))
    with rh.MonitoredSession() as sess:
        held = signal.getsignal(number)
        signal.signal(number, lambda number, frame: held(number, frame))
    send(number)
    send(number)
    assert calls == [number] * 2
    assert sess.stop_reason == "close was called"


def test_session_of_another_thread_trains_and_leaves_the_signals_alone(train_op, graph, tmp_path):
    op, _ = train_op
    before, seen = handlers(), []

    def train():
        with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
            seen.extend(handlers())
            sess.run(op)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == before
    assert saved_step(tmp_path) == 1


def test_session_may_be_closed_in_another_thread(train_op):
    sess = rh.MonitoredSession()
    thread = threading.Thread(target=sess.close)
    thread.start()
    thread.join()
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_sigterm_ends_the_process_again_once_another_thread_has_closed_the_session():
    script = """
import os, signal, threading
import runhooks as rh
thread = threading.Thread(target=rh.MonitoredSession().close)
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
"""
    result = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert result.returncode == -signal.SIGTERM


def test_session_that_nobody_closed_does_not_disturb_the_end_of_the_process():
    script = """
import runhooks as rh
session = rh.MonitoredSession()
session.itself = session
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
