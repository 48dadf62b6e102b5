"""What a hook does for long gives way to a stop, so that the loop can end and save."""

import logging
import signal
import threading

import pytest

import runhooks as rh


def test_end_of_an_input_in_the_end_of_a_hook_is_raised(model):
    class Late(rh.SessionRunHook):
        def end(self, session):
            raise rh.errors.OutOfRangeError("nothing is left")

    with pytest.raises(rh.errors.OutOfRangeError, match="nothing is left"):
        with rh.MonitoredSession(hooks=[Late()]) as sess:
            sess.run(model.train_op)


def evaluated(folder, caplog, *, stop_at=None):
    """Train to step 6, evaluating every 2; the steps of that. A stop comes in that of ``stop_at``.

    A run of the program on its own: it is resumed from ``folder``.
    """
    caplog.clear()
    with rh.Graph().as_default():
        weight = rh.Variable(1.0, name="weight")
        train_op = rh.group(weight.assign_add(1.0), rh.train.create_global_step().assign_add(1))
        batch = rh.placeholder("batch")

        def feeds(step):
            yield {batch: 1.0}
            if step == stop_at:
                signal.raise_signal(signal.SIGTERM)
            yield {batch: 2.0}

        evaluation = rh.EvaluationHook({"metric": weight * batch}, feeds, every_n_steps=2)
        hooks = [evaluation, rh.StopAtStepHook(last_step=6)]
        sess = rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks)
        with sess:
            while not sess.should_stop():
                sess.run(train_op)
    lines = [line for line in caplog.messages if line.startswith("EvaluationHook at step")]
    return [int(line.split()[3].rstrip(":")) for line in lines]


def test_evaluation_that_was_dropped_is_made_up_by_the_resumed_run(tmp_path, caplog):
    caplog.set_level(logging.INFO, "runhooks")
    assert evaluated(tmp_path, caplog, stop_at=4) == [2]
    assert "the evaluation at step 4 is dropped: SIGTERM" in caplog.text
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-4")
    assert evaluated(tmp_path, caplog) == [4, 6]
    assert evaluated(tmp_path, caplog) == []


def test_run_that_waits_for_others_is_not_made_after_a_stop(model):
    with rh.MonitoredSession(hooks=[rh.GlobalStepWaiterHook(wait_until_step=10)]) as sess:
        threading.Timer(0.05, sess.request_stop, ("enough",)).start()
        with pytest.raises(rh.errors.OutOfRangeError, match="ended at 0: enough"):
            sess.run(model.train_op)
        assert sess.global_step == 0


@pytest.mark.parametrize("own", [False, True])
def test_a_loop_that_does_not_ask_makes_no_run_after_a_stop_before_the_first(own):
    class StopsFirst(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            coord.request_stop(reason="trained already")

    graph = rh.graph(lambda w: (w + 1, {"loss": w}), w=0.0)
    hooks = [StopsFirst() if own else rh.StopAtStepHook(last_step=0)]
    who = r"StopsFirst \(trained already\)" if own else "StopAtStepHook"
    with graph.as_default():
        with pytest.raises(RuntimeError, match=f"run was called after {who} asked to stop"):
            with rh.MonitoredSession(hooks=hooks) as session:
                assert session.should_stop()
                assert session.run("loss", hooks=False) == 0.0
                session.run("train_op")
        assert session.global_step == 0


def test_a_thread_that_asks_to_stop_before_the_first_run_lets_it_be_made():
    class Starts(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            thread = threading.Thread(target=coord.request_stop)
            thread.start()
            thread.join()

    graph = rh.graph(lambda w: (w + 1, {"loss": w}), w=0.0)
    with graph.as_default(), rh.MonitoredSession(hooks=[Starts()]) as session:
        assert session.should_stop()
        session.run("train_op")
        assert session.global_step == 1
