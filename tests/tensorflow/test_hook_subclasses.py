"""Subclasses of hooks that programs for TensorFlow have, over TensorFlow's graphs."""

import pytest
import tensorflow.compat.v1 as tf

from runhooks.tensorflow import train
from runhooks.testing import read_events

SESSIONS = pytest.mark.parametrize("session", [train.MonitoredSession, tf.train.MonitoredSession])


class ExamplesPerSecondHook(train.StepCounterHook):
    """As ``tf.estimator``'s examples had it."""

    def __init__(self, batch_size, **arguments):
        super().__init__(**arguments)
        self._batch_size, self.calls = batch_size, []

    def _log_and_record(self, elapsed_steps, elapsed_time, global_step):
        self.calls.append((elapsed_steps, global_step))
        if self._summary_writer is not None:
            value = tf.Summary.Value(tag="examples/sec", simple_value=elapsed_steps)
            self._summary_writer.add_summary(tf.Summary(value=[value]), global_step)


@SESSIONS
def test_examples_per_second(session, tmp_path):
    hook = ExamplesPerSecondHook(32, every_n_steps=2, output_dir=str(tmp_path))
    with tf.Graph().as_default():
        increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with session(hooks=[hook]) as running:
            for _ in range(5):
                running.run(increase)
    assert hook.calls == [(2, 3), (2, 5)]
    assert [(s.tag, s.step) for s in read_events(tmp_path)] == [
        ("examples/sec", 3),
        ("examples/sec", 5),
    ]


@SESSIONS
def test_log_tensors(session):
    class Log(train.LoggingTensorHook):
        got = ()

        def _log_tensors(self, tensor_values):
            self.got += (dict(tensor_values),)
            super()._log_tensors(tensor_values)

    hook = Log({"seven": "seven:0"}, every_n_iter=2)
    with tf.Graph().as_default():
        tf.constant(7, name="seven")
        increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with session(hooks=[hook]) as running:
            for _ in range(3):
                running.run(increase)
    assert hook.got == ({"seven": 7}, {"seven": 7})


@SESSIONS
def test_a_checkpoint_hook_that_saves_at_the_end_alone(session, tmp_path):
    class AtTheEnd(train.CheckpointSaverHook):
        def after_create_session(self, session, coord):
            pass

        def after_run(self, run_context, run_values):
            pass

    with tf.Graph().as_default():
        increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        hook = AtTheEnd(str(tmp_path), save_steps=1, saver=tf.train.Saver())
        with session(hooks=[hook]) as running:
            for _ in range(3):
                running.run(increase)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    assert len(list(tmp_path.glob("*.index"))) == 1


@pytest.mark.parametrize("last_step", [4, 5])
def test_save_is_called_once_a_step_as_in_tensorflow(last_step, tmp_path):
    def calls(library, directory):
        made = []

        class Saver(library.CheckpointSaverHook):
            def _save(self, session, step):
                made.append(("save", step))
                return super()._save(session, step)

        class Listener(library.CheckpointSaverListener):
            def before_save(self, session, global_step_value):
                made.append(("before", global_step_value))

            def after_save(self, session, global_step_value):
                made.append(("after", global_step_value))

            def end(self, session, global_step_value):
                made.append(("end", global_step_value))

        with tf.Graph().as_default():
            increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            saver = tf.train.Saver()
            hook = Saver(directory, save_steps=2, saver=saver, listeners=[Listener()])
            stop = library.StopAtStepHook(last_step=last_step)
            with library.MonitoredSession(hooks=[hook, stop]) as running:
                while not running.should_stop():
                    running.run(increase)
        return made

    ours = calls(train, str(tmp_path / "ours"))
    assert ours == calls(tf.train, str(tmp_path / "theirs"))
    assert ours.count(("save", last_step)) == 1
