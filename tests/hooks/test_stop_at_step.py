import re

import pytest

import runhooks as rh


@pytest.mark.parametrize("arguments", [{}, {"num_steps": 1, "last_step": 1}])
def test_exactly_one_argument(arguments):
    with pytest.raises(ValueError, match="num_steps and last_step"):
        rh.StopAtStepHook(**arguments)


def test_stops_at_the_last_step(train):
    assert train(rh.StopAtStepHook(last_step=7)) == 7


def test_stops_after_a_number_of_steps(train):
    assert train(rh.StopAtStepHook(num_steps=7)) == 7


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
