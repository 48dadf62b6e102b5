"""TensorFlow's hooks in our sessions, ours in TensorFlow's, and both in either."""

import itertools

import numpy as np
import pytest
import tensorflow

from runhooks.engines.tensorflow.session import ObservedSession
from runhooks.tensorflow import train
from runhooks.testing import read_events

tf = tensorflow.compat.v1


def hooks_of(kind, folder, model, summary_op):
    return [
        kind.StopAtStepHook(last_step=7),
        kind.StepCounterHook(every_n_steps=2, output_dir=folder),
        kind.LoggingTensorHook([model.loss], every_n_iter=3),
        kind.SummarySaverHook(save_steps=2, output_dir=folder, summary_op=summary_op),
        kind.CheckpointSaverHook(folder, save_steps=3),
        kind.NanTensorHook(model.loss),
        kind.GlobalStepWaiterHook(0),
        kind.FinalOpsHook(model.loss),
    ]


def loop(session, model):
    with session:
        while not session.should_stop():
            session.run(model.train_op)


@pytest.mark.parametrize("hooks_from", ["ours", "tensorflow", "mixed"])
@pytest.mark.parametrize("session_from", ["ours", "tensorflow"])
def test_all_hooks_work_in_all_sessions(graph, model, tmp_path, hooks_from, session_from):
    folder = str(tmp_path)
    kinds = {"ours": train, "tensorflow": tf.train}
    summary_op = tf.summary.scalar("weight", model.loss)
    if hooks_from == "mixed":
        one, other = (hooks_of(kind, folder, model, summary_op) for kind in kinds.values())
        hooks = [*one[::2], *other[1::2]]
    else:
        hooks = hooks_of(kinds[hooks_from], folder, model, summary_op)
    loop(kinds[session_from].MonitoredSession(hooks=hooks), model)
    check(folder, hooks)


def check(folder, hooks):
    final = next(hook for hook in hooks if hasattr(hook, "final_ops_values"))
    assert final.final_ops_values == 14.0
    assert tf.train.latest_checkpoint(folder) == f"{folder}/model.ckpt-7"
    np.testing.assert_array_equal(tf.train.load_checkpoint(folder).get_tensor("weights"), [7, 7])
    assert tags_in(folder) == {"weight", "global_step/sec"}


def tags_in(folder):
    return {value.tag for value in read_events(folder)}


def test_users_subclass_of_tensorflows_hook_fetches_and_feeds(model):
    class Hook(tf.train.SessionRunHook):
        seen = ()

        def before_run(self, run_context):
            return tf.train.SessionRunArgs({"loss": model.loss}, {model.fault: 1.0})

        def after_run(self, run_context, run_values):
            self.seen = (*self.seen, run_values.results["loss"])
            if len(self.seen) == 3:
                run_context.request_stop()

    hook = Hook()
    with train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(model.train_op)
    assert len(hook.seen) == 3


def test_tensorflows_saver_and_hooks_take_our_session(model, tmp_path):
    saver = tf.train.Saver()
    with train.SingularMonitoredSession() as session:
        session.run(model.train_op)
        path = saver.save(session.raw_session(), str(tmp_path / "by-hand"))
        session.run(model.train_op)
        saver.restore(session.raw_session(), path)
        assert session.global_step == 1
        np.testing.assert_array_equal(session.run(model.weights), [1, 1])


def test_a_saver_counts_from_the_step_that_it_saves_first(model, tmp_path, monkeypatch):
    steps = itertools.count()  # another worker makes a step between any two reads
    monkeypatch.setattr(ObservedSession, "global_step", property(lambda self: next(steps)))
    hook = train.CheckpointSaverHook(str(tmp_path), save_steps=100)
    with tf.train.MonitoredSession(hooks=[hook]):
        assert hook.next_due().step == 100
        assert tf.train.latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-0"
