import pytest

import runhooks as rh


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
