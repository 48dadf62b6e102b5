"""What a hook does for long gives way to a stop, so that the loop can end and save."""

import logging
import signal
import threading

import pytest

import runhooks as rh


def test_evaluation_is_dropped_when_a_signal_comes(model, tmp_path, caplog):
    batches = rh.placeholder("batch")

    def feeds():
        yield {batches: 1.0}
        signal.raise_signal(signal.SIGTERM)
        yield {batches: 2.0}
        pytest.fail("the evaluation goes on")

    metric = rh.call(lambda w, b: w.sum() * b, model.weights, batches)
    evaluation = rh.EvaluationHook({"metric": metric}, feeds, every_n_steps=2)
    with caplog.at_level(logging.WARNING, "runhooks"):
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[evaluation]) as sess:
            while not sess.should_stop():
                sess.run(model.train_op)
    assert sess.stop_reason == "SIGTERM"
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")
    assert evaluation.metrics_at(2) == {}
    assert "the evaluation at step 2 is dropped: SIGTERM" in caplog.text


def test_waiting_for_others_ends_with_a_stop(model):
    with rh.MonitoredSession(hooks=[rh.GlobalStepWaiterHook(wait_until_step=10)]) as sess:
        threading.Timer(0.05, sess.request_stop, ("enough",)).start()
        sess.run(model.train_op)
        assert (sess.should_stop(), sess.stop_reason) == (True, "enough")


def test_end_of_an_input_in_the_end_of_a_hook_is_raised(model):
    class Late(rh.SessionRunHook):
        def end(self, session):
            raise rh.errors.OutOfRangeError("nothing is left")

    with pytest.raises(rh.errors.OutOfRangeError, match="nothing is left"):
        with rh.MonitoredSession(hooks=[Late()]) as sess:
            sess.run(model.train_op)
