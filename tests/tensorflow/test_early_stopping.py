"""Early stopping as ``tf.estimator`` had it, by what another process has evaluated."""

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1


@pytest.fixture
def evaluated(tmp_path):
    """A directory of evaluations, as TensorFlow writes them."""
    with tf.Graph().as_default():
        writer = tf.summary.FileWriter(str(tmp_path / "eval"))
        for step, loss, accuracy in [
            (1000, 0.8, 0.5),
            (2000, 0.7, 0.6),
            (3000, 0.4, 0.7),
            (3500, 0.41, 0.68),
        ]:
            summary = tf.Summary()
            summary.value.add(tag="loss", simple_value=loss)
            summary.value.add(tag="accuracy", simple_value=accuracy)
            writer.add_summary(summary, step)
        writer.close()
    return tmp_path / "eval"


def stops(*hooks, session=train.SingularMonitoredSession):
    """Whether one step is enough for a hook to ask for a stop."""
    with tf.Graph().as_default():
        increase = tf.assign_add(tf.train.create_global_step(), 1)
        with session(hooks=list(hooks)) as running:
            running.run(increase)
            return running.should_stop()


EITHER = pytest.mark.parametrize(
    "session", [train.SingularMonitoredSession, tf.train.SingularMonitoredSession]
)


@EITHER
@pytest.mark.parametrize(
    ("make", "metric", "limit", "min_steps", "should_stop"),
    [
        (train.stop_if_higher_hook, "accuracy", 0.8, 0, False),
        (train.stop_if_higher_hook, "accuracy", 0.6, 4000, False),
        (train.stop_if_higher_hook, "accuracy", 0.6, 0, True),
        (train.stop_if_lower_hook, "loss", 0.3, 0, False),
        (train.stop_if_lower_hook, "loss", 0.5, 0, True),
        (train.stop_if_no_increase_hook, "accuracy", 1500, 0, False),
        (train.stop_if_no_increase_hook, "accuracy", 500, 0, True),
        (train.stop_if_no_decrease_hook, "loss", 1500, 0, False),
        (train.stop_if_no_decrease_hook, "loss", 500, 0, True),
    ],
)
def test_stops_by_evaluations(evaluated, session, make, metric, limit, min_steps, should_stop):
    for cadence in ((), (None, 1)):
        hook = make(None, metric, limit, evaluated, min_steps, *cadence)
        assert stops(hook, session=session) is should_stop
