"""Threads that share a session of a ``tf.Graph``, in which one run may wait for another."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from runhooks.tensorflow import train

v1 = tf.compat.v1


class Pause:
    """An operation of which a run waits until another run, which this thread makes, has ended."""

    def __init__(self):
        self.inside, self.over = threading.Event(), threading.Event()

    def operation(self):
        def wait():
            self.inside.set()
            assert self.over.wait(60)
            return np.float32(0)

        return tf.numpy_function(wait, [], tf.float32)

    def run(self, session, slow, fast):
        thread = threading.Thread(target=session.run, args=(slow,))
        thread.start()
        assert self.inside.wait(60)
        session.run(fast)
        self.over.set()
        thread.join()


def test_hook_that_is_due_is_asked_by_one_of_the_runs_that_overlap():
    class Counts(train.SessionRunHook):
        asked = 0

        def __init__(self):
            self.timer = train.Timer(train.Trigger(on_steps=[1]))

        def next_due(self):
            return self.timer.due()

        def before_run(self, run_context):
            self.asked += 1

        def after_run(self, run_context, run_values):
            self.timer.update_last_triggered_step(run_context.session.global_step)

    pause, hook = Pause(), Counts()
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([pause.operation()]):
            slow = step.assign_add(1)
        fast = step.assign_add(1)
        with train.MonitoredSession(hooks=[hook]) as session:
            pause.run(session, slow, fast)
    assert hook.asked == 1


def test_a_hook_sees_the_step_of_its_own_run():
    pause, seen = Pause(), []

    class Sees(train.SessionRunHook):
        def before_run(self, run_context):
            return train.SessionRunArgs(made)

        def after_run(self, run_context, run_values):
            seen.append((run_context.session.global_step, int(run_values.results)))

    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        made = step.assign_add(1)
        with tf.control_dependencies([made]):
            slow = pause.operation()
        with train.MonitoredSession(hooks=[Sees()]) as session:
            pause.run(session, [made, slow], made)
            assert session.global_step == 2
    assert sorted(seen) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("options", [None, v1.RunOptions()])
def test_steps_that_another_thread_makes_between_runs_stop_the_loop(options):
    seen = []

    class Sees(train.SessionRunHook):
        def after_create_session(self, session, coord):
            session.run(made)

        def after_run(self, run_context, run_values):
            run_context.session.run(value)
            seen.append(run_context.session.global_step)

    with tf.Graph().as_default():
        made = v1.train.get_or_create_global_step().assign_add(1)
        value = tf.constant(1)
        stop = train.StopAtStepHook(last_step=4)
        with train.MonitoredSession(hooks=[Sees(), stop]) as session:
            while not session.should_stop() and len(seen) < 9:
                raw = session.run_step_fn(lambda step_context: step_context.session)
                thread = threading.Thread(target=raw.run, args=(made,))
                thread.start()
                thread.join()
                session.run(value, options=options)
    assert seen == [2, 3, 4]
    assert session.stop_reason == "StopAtStepHook"
