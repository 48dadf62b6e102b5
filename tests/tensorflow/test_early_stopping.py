"""Early stopping as ``tf.estimator`` had it, by one process and by a cluster."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1


class Estimator:
    """What a hook looks at of an estimator and its ``RunConfig``."""

    def __init__(self, folder, is_chief=True):
        self.model_dir, self.config, self.is_chief = folder, self, is_chief


@pytest.fixture
def evaluated(tmp_path):
    """An estimator with evaluations on disk, as TensorFlow writes them."""
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
    return Estimator(str(tmp_path))


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
    assert stops(make(evaluated, metric, limit, min_steps=min_steps), session=session) is (
        should_stop
    )
    hook = make(None, metric, limit, evaluated.model_dir + "/eval", min_steps, None, 1)
    assert stops(hook, session=session) is should_stop


@EITHER
@pytest.mark.parametrize("should_stop", [True, False])
def test_chief_stops_and_tells_the_others(evaluated, session, should_stop):
    hook = train.make_early_stopping_hook(evaluated, lambda: should_stop)
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        nothing = tf.no_op()
        with session(hooks=[hook]) as running:
            told = graph.get_tensor_by_name("signal_early_stopping/STOP/Read/ReadVariableOp:0")
            raw = running.raw_session()
            assert not raw.run(told)
            running.run(nothing)
            assert running.should_stop() is should_stop
            assert raw.run(told) == should_stop


@EITHER
@pytest.mark.parametrize("make", ["make_early_stopping_hook", "stop_if_lower_hook"])
def test_worker_stops_when_it_is_told(evaluated, session, make):
    evaluated.is_chief = False
    if make == "make_early_stopping_hook":
        hook = train.make_early_stopping_hook(evaluated, lambda: pytest.fail("is no chief"))
    else:
        hook = train.stop_if_lower_hook(evaluated, "loss", 0.5)  # crossed; the chief is to say so
    with tf.Graph().as_default():
        nothing = tf.no_op()
        with tf.variable_scope("signal_early_stopping", reuse=tf.AUTO_REUSE):
            tell = tf.assign(tf.get_variable("STOP", [], tf.bool), True)
        with session(hooks=[hook]) as running:
            running.run(nothing)
            assert not running.should_stop()
            running.run(tell)
            running.run(nothing)
            assert running.should_stop()


def test_chief_that_is_started_again_takes_back_its_stop(evaluated, tmp_path):
    for should_stop in (True, False):
        hook = train.make_early_stopping_hook(evaluated, lambda: should_stop)  # noqa: B023
        with tf.Graph().as_default():
            increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            with train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=[hook]
            ) as running:
                running.run(increase)
        saved = tf.train.load_checkpoint(str(tmp_path))
        assert saved.get_tensor("signal_early_stopping/STOP") == should_stop


def test_hooks_of_one_graph_share_the_flag_and_a_second_session_adds_nothing(evaluated):
    hooks = [train.make_early_stopping_hook(evaluated, lambda: False) for _ in range(2)]
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        with train.MonitoredSession(hooks=hooks):
            added = len(graph.get_operations())
            names = {it.op.name for it in tf.global_variables()}
            assert names == {"global_step", "signal_early_stopping/STOP"}
        with train.MonitoredSession(hooks=hooks):
            assert len(graph.get_operations()) == added


def test_workers_of_a_cluster_stop_with_their_chief(evaluated, tmp_path):
    server = tf.train.Server.create_local_server()
    worked = []

    def work(estimator, should_stop, made):
        hook = train.make_early_stopping_hook(estimator, should_stop, None, 1)
        with tf.Graph().as_default():
            increase = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            with train.MonitoredTrainingSession(
                server.target, is_chief=estimator.is_chief, hooks=[hook]
            ) as running:
                while not running.should_stop() and len(made) < 100_000:
                    running.run(increase)
                    made.append(running.global_step)
            return running.stop_reason

    with ThreadPoolExecutor() as threads:
        chief = threads.submit(work, evaluated, lambda: len(worked) > 5, [])
        worker = threads.submit(work, Estimator(tmp_path, False), pytest.fail, worked)
        assert chief.result() == worker.result() == "EarlyStoppingHook"
