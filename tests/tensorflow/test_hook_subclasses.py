"""Subclasses of hooks that programs for TensorFlow have, over TensorFlow's graphs."""

import pytest
import tensorflow.compat.v1 as tf

from runhooks.tensorflow import train
from runhooks.testing import read_events

SESSIONS = pytest.mark.parametrize("session", [train.MonitoredSession, tf.train.MonitoredSession])


def train_for(steps, session, hooks):
    """Train in a session of this kind until ``steps`` steps are made, or a hook stops it."""
    increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    with session(hooks=hooks) as running:
        for _ in range(steps):
            if not running.should_stop():
                running.run(increase)


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
def test_what_steps_per_second_and_tensors_are_told(session, tmp_path):
    class Log(train.LoggingTensorHook):
        got = ()

        def _log_tensors(self, tensor_values):
            self.got += (dict(tensor_values),)
            super()._log_tensors(tensor_values)

    counter = ExamplesPerSecondHook(32, every_n_steps=2, output_dir=str(tmp_path))
    log = Log({"seven": "seven:0"}, every_n_iter=2)
    with tf.Graph().as_default():
        tf.constant(7, name="seven")
        train_for(5, session, [counter, log])
    assert counter.calls == [(2, 3), (2, 5)]
    assert [(s.tag, s.step) for s in read_events(tmp_path)] == [
        ("examples/sec", 3),
        ("examples/sec", 5),
    ]
    assert log.got == ({"seven": 7},) * 3


@SESSIONS
def test_a_checkpoint_hook_that_saves_at_the_end_alone(session, tmp_path):
    class AtTheEnd(train.CheckpointSaverHook):
        def after_create_session(self, session, coord):
            pass

        def after_run(self, run_context, run_values):
            pass

    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        hook = AtTheEnd(str(tmp_path), save_steps=1, saver=tf.train.Saver())
        train_for(3, session, [hook])
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
            tf.train.get_or_create_global_step()
            hook = Saver(directory, save_steps=2, saver=tf.train.Saver(), listeners=[Listener()])
            stop = library.StopAtStepHook(last_step=last_step)
            train_for(9, library.MonitoredSession, [hook, stop])
        return made

    ours = calls(train, str(tmp_path / "ours"))
    assert ours == calls(tf.train, str(tmp_path / "theirs"))
    assert ours.count(("save", last_step)) == 1


@SESSIONS
def test_save_takes_a_step_as_a_run_returns_it(session, tmp_path):
    class Saves(train.CheckpointSaverHook):
        def after_run(self, run_context, run_values):
            step = run_context.session.run(self._global_step_tensor)
            if step % 5 == 0:
                self._save(run_context.session, step)

    hooks = [Saves(str(tmp_path), save_steps=100), train.StopAtStepHook(last_step=12)]
    with tf.Graph().as_default():
        train_for(99, session, hooks)
    saved = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in saved] == ["0", "5", "10", "12"]


@SESSIONS
def test_timer_of_a_hook_that_logs_at_the_end_alone(session):
    class Metric(train.LoggingTensorHook):
        got = ()

        def _log_tensors(self, tensor_values):
            self.got += (dict(tensor_values), self._timer.last_triggered_step())
            elapsed = self._timer.update_last_triggered_step(self._iter_count)
            self.got += (elapsed, self._timer.should_trigger_for_step(10**9))

    hook = Metric({"seven": "seven:0"}, at_end=True)
    with tf.Graph().as_default():
        tf.constant(7, name="seven")
        train_for(3, session, [hook])
    assert hook.got == ({"seven": 7}, None, (None, None), False)


def test_a_summary_saver_may_end_without_a_session(tmp_path):
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        summary = tf.summary.scalar("seven", 7.0)
        hook = train.SummarySaverHook(1, output_dir=str(tmp_path), summary_op=summary)
        hook.begin()
        hook.end()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            hook.after_create_session(session, None)
            hook._summary_writer.add_summary(session.run(summary), 3)
            hook.end()
    assert [(it.tag, it.step) for it in read_events(tmp_path)] == [("seven", 3)]
