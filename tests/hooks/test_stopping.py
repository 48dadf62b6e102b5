"""Hooks that stop the loop: at a step, and after a time."""

import re

import pytest

import runhooks as rh


@pytest.mark.parametrize("argument", ["last_step", "num_steps"])
def test_stops_at_a_step(train, argument):
    assert train(rh.StopAtStepHook(**{argument: 7})) == 7


@pytest.mark.parametrize("arguments", [{}, {"num_steps": 1, "last_step": 1}])
def test_exactly_one_argument(arguments):
    with pytest.raises(ValueError, match="num_steps and last_step"):
        rh.StopAtStepHook(**arguments)


@pytest.fixture
def at_step_5(train, tmp_path):
    """Arguments of a session that resumes at step 5."""
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=5)
    return {"checkpoint_dir": str(tmp_path)}


def test_a_number_of_steps_counts_from_where_the_session_starts(train, at_step_5):
    assert train(rh.StopAtStepHook(num_steps=7), **at_step_5) == 12
    assert train(rh.StopAtStepHook(last_step=7), **at_step_5) == 7


@pytest.mark.parametrize("last_step", [4, 5])
def test_a_run_that_is_there_already_makes_no_step(train, at_step_5, last_step):
    assert train(rh.StopAtStepHook(last_step=last_step), **at_step_5) == 5


def test_a_run_that_makes_no_step_does_not_count(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=1)]) as sess:
        sess.run(model.loss)
        assert not sess.should_stop()
        sess.run(model.train_op)
        assert sess.should_stop()


def test_a_loop_that_makes_no_step_is_warned_once(model, caplog):
    """Such as one of session.run("loss"), which would never end."""

    def warnings():
        return [it for it in caplog.messages if "the global step is still" in it]

    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=3)]) as sess:
        for _ in range(150):
            sess.run(model.loss)
        assert not warnings()
        for _ in range(300):
            sess.run(model.loss)
        (warning,) = warnings()
        assert re.search(
            r"still 0 after \d+ runs, .* waits for 3: run the train operation", warning
        )
        while not sess.should_stop():
            sess.run(model.train_op)
        assert sess.global_step == 3
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=600)]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
    assert len(warnings()) == 1


# --- After a time


def test_it_must_be_above_zero():
    with pytest.raises(ValueError, match="secs"):
        rh.TimeLimitHook(0)


def run_steps(sess, model, clock, most=10):
    """One second a step, until it is to stop."""
    for _ in range(most):
        if sess.should_stop():
            break
        sess.run(model.train_op)
        clock.advance(1)
    return sess.global_step


def test_the_first_run_after_that_time_is_the_last(model, fake_clock, caplog):
    caplog.set_level("INFO", "runhooks")
    with rh.MonitoredSession(hooks=[rh.TimeLimitHook(3)]) as sess:
        assert run_steps(sess, model, fake_clock) == 4
        assert sess.stop_reason == "TimeLimitHook"
    line = "asking to stop at step 4: the session has been open for 3 seconds, its time limit is 3"
    assert line in caplog.messages


def test_the_start_of_the_session_counts(model, fake_clock):
    class SlowStart(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            fake_clock.advance(2)

    with rh.MonitoredSession(hooks=[rh.TimeLimitHook(3), SlowStart()]) as sess:
        assert run_steps(sess, model, fake_clock) == 2


def test_a_recovery_does_not_begin_anew(model, fake_clock):
    with rh.MonitoredSession(hooks=[rh.TimeLimitHook(5)]) as sess:
        run_steps(sess, model, fake_clock, most=3)
        model.faults.fail(rh.errors.AbortedError("lost"))
        assert run_steps(sess, model, fake_clock) == 3  # of 6 runs in all; 3 were lost


def test_a_next_session_has_all_the_time_again(model, fake_clock, tmp_path):
    hook = rh.TimeLimitHook(2)
    for last_step in (3, 6):
        with rh.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook]) as sess:
            assert run_steps(sess, model, fake_clock) == last_step


def test_a_graph_without_global_step(graph, fake_clock):
    loss = rh.call(lambda: 1.0)
    with rh.MonitoredSession(hooks=[rh.TimeLimitHook(1)]) as sess:
        sess.run(loss)
        assert not sess.should_stop()
        fake_clock.advance(1)
        sess.run(loss)
        assert sess.should_stop()
