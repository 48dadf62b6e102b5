"""``InMemoryEvaluatorHook`` as ``tf.estimator`` had it, for loops of one's own."""

import logging
from collections import namedtuple
from functools import partial

import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import train
from runhooks.testing import RecordingHook

tf = tensorflow.compat.v1

EstimatorSpec = namedtuple(
    "EstimatorSpec",
    ["mode", "loss", "train_op", "eval_metric_ops", "scaffold", "evaluation_hooks"],
    defaults=[None] * 4,
)


class Estimator:
    """What a program keeps of its estimator when it makes the loop itself."""

    def __init__(self, model_fn, model_dir):
        self.model_fn, self.model_dir = model_fn, str(model_dir)

    def train(self, input_fn, hooks, session=train.MonitoredTrainingSession, **kwargs):
        with tf.Graph().as_default():
            tf.train.get_or_create_global_step()
            features = tf.data.make_one_shot_iterator(input_fn()).get_next()
            spec = self.model_fn(features, None, "train")
            with session(hooks=hooks, **kwargs) as running:
                while not running.should_stop():
                    running.run(spec.train_op)


def ten():
    return tf.data.Dataset.range(10)


def counting(features, labels, mode):
    if mode == "train":
        with tf.control_dependencies([features]):
            train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        return EstimatorSpec(mode, tf.constant(3.0), train_op)
    metrics = {"mean_of_features": tf.metrics.mean(features)}
    return EstimatorSpec(mode, tf.constant(5.0), eval_metric_ops=metrics)


def latest(features, labels, mode, use_resource=True):
    """``w`` is 0 at first, and two more than the step after each."""
    step = tf.train.get_or_create_global_step()
    zero = tf.zeros_initializer()
    w = tf.get_variable("w", [], tf.int64, zero, use_resource=use_resource)
    if mode == "eval":
        return EstimatorSpec(mode, tf.cast(features, tf.float32), None, {"w": (w, tf.no_op())})
    with tf.control_dependencies([features]):
        increase = tf.assign_add(step, 1)
    with tf.control_dependencies([increase]):
        return EstimatorSpec(mode, tf.constant(3.0), w.assign(step.read_value() + 2))


SESSIONS = {"ours": train.MonitoredTrainingSession, "tensorflow": tf.train.MonitoredTrainingSession}


@pytest.mark.parametrize("session", SESSIONS)
def test_evaluates_before_training_every_so_often_and_at_the_end(tmp_path, session):
    estimator = Estimator(counting, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=4)
    estimator.train(ten, [evaluator], SESSIONS[session])
    found = train.read_eval_metrics(tmp_path / "eval")
    assert found == {step: {"mean_of_features": 4.5, "loss": 5.0} for step in (0, 4, 8, 10)}


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("use_resource", [True, False])
def test_uses_the_latest_values(tmp_path, session, use_resource):
    estimator = Estimator(partial(latest, use_resource=use_resource), tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=4, name="latest")
    estimator.train(ten, [evaluator], SESSIONS[session])
    found = train.read_eval_metrics(tmp_path / "eval_latest")
    assert {step: metrics["w"] for step, metrics in found.items()} == {0: 0, 4: 6, 8: 10, 10: 12}


def test_no_checkpoint_is_written_for_it(tmp_path):
    estimator = Estimator(latest, tmp_path)
    estimator.train(ten, [train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=4)])
    assert [path.name for path in tmp_path.iterdir()] == ["eval"]


def test_resumed_training_is_what_it_evaluates(tmp_path):
    estimator = Estimator(latest, tmp_path)
    for limit in (5, 10):
        evaluator = train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=4)
        hooks = [evaluator, train.StopAtStepHook(last_step=limit)]
        estimator.train(ten, hooks, checkpoint_dir=str(tmp_path))
    found = train.read_eval_metrics(tmp_path / "eval")
    assert {step: metrics["w"] for step, metrics in found.items()} == {
        step: step + 2 if step else 0 for step in (0, 4, 5, 8, 10)
    }


def test_lost_session_is_evaluated_anew(tmp_path):
    class LoseAt(train.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs == 3:
                raise tf.errors.AbortedError(None, None, "lost")

    estimator = Estimator(latest, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=4)
    estimator.train(ten, [evaluator, LoseAt()])
    assert evaluator.metrics_at(10)["w"] == 12


def test_steps_hooks_and_those_of_the_model(tmp_path):
    inner, of_the_model = RecordingHook(fetches="doubled:0"), RecordingHook()

    def model_fn(features, labels, mode):
        tf.identity(features * 2, "doubled")
        spec = counting(features, labels, mode)
        return spec._replace(evaluation_hooks=[of_the_model])

    estimator = Estimator(model_fn, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten, 2, [inner], every_n_iter=20)
    estimator.train(ten, [evaluator])
    evaluation = ["after_create_session", *["before_run", "after_run"] * 2, "end"]
    assert inner.methods == of_the_model.methods == ["begin", *evaluation * 2]
    assert inner.results == [0, 2] * 2
    assert evaluator.metrics_at(10) == {"mean_of_features": 0.5, "loss": 5.0}


def test_tensorflows_hooks_ride_along(tmp_path):
    final = tf.train.FinalOpsHook("w/Read/ReadVariableOp:0")
    estimator = Estimator(latest, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten, hooks=[final], every_n_iter=4)
    estimator.train(ten, [evaluator])
    assert final.final_ops_values == 12


def pairs():
    return tf.data.Dataset.from_tensor_slices(([1.0, 2.0, 3.0], [1, 0, 1])).batch(2)


def tensors():
    return tf.constant([1.0, 3.0]), tf.constant([1, 1])


def queues():
    value, label = tf.train.slice_input_producer([[1.0, 2.0, 3.0], [1, 0, 1]], 1, shuffle=False)
    return tf.train.batch([value, label], 2, allow_smaller_final_batch=True)


@pytest.mark.parametrize("input_fn", [pairs, tensors, queues])
def test_what_input_fn_gives(tmp_path, input_fn):
    def model_fn(features, labels, mode):
        if mode == "train":
            return counting(features, labels, mode)
        right = tf.metrics.accuracy(labels, tf.cast(features > 1.5, tf.int32))
        return EstimatorSpec(mode, tf.reduce_mean(features), None, {"right": right})

    estimator = Estimator(model_fn, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, input_fn, every_n_iter=4)
    estimator.train(ten, [evaluator])
    found = train.read_eval_metrics(tmp_path / "eval")
    right = {"pairs": 1 / 3, "queues": 1 / 3, "tensors": 0.5}[input_fn.__name__]
    loss = {"pairs": 2.25, "queues": 2.25, "tensors": 2.0}[input_fn.__name__]
    assert found == {step: {"right": pytest.approx(right), "loss": loss} for step in (0, 4, 8, 10)}


def test_tables_and_datasets_that_need_them_begin_anew(tmp_path):
    def table():
        keys = tensorflow.lookup.KeyValueTensorInitializer(["a", "b"], [3.0, 5.0])
        return tensorflow.lookup.StaticHashTable(keys, 0.0)

    def input_fn():
        words = table()
        return tf.data.Dataset.from_tensor_slices(["a", "b"]).map(words.lookup)

    estimator = Estimator(counting, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, input_fn, every_n_iter=5)
    estimator.train(ten, [evaluator])
    assert evaluator.metrics_at(10)["mean_of_features"] == 4.0


def test_metrics_that_are_no_numbers_are_written(tmp_path):
    def model_fn(features, labels, mode):
        spec = counting(features, labels, mode)
        if mode == "train":
            return spec
        image = tf.summary.image("picture", tf.zeros([1, 2, 2, 1]))
        both = tf.stack([tf.constant(1.0), tf.constant(2.0)])
        metrics = {"both": (both, tf.no_op()), "image": (image, tf.no_op())}
        return spec._replace(eval_metric_ops=metrics)

    estimator = Estimator(model_fn, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten)
    estimator.train(ten, [evaluator])
    assert evaluator.metrics_at(10) == {"loss": 5.0}
    run = rh.events.read(tmp_path / "eval").only
    assert list(run.images) == ["picture/image/0"]
    assert [point.value.tolist() for point in run.tensors["both"]] == [[1.0, 2.0]] * 2


def test_scaffold_of_the_model(tmp_path):
    def model_fn(features, labels, mode):
        spec = counting(features, labels, mode)
        if mode == "train":
            return spec
        local = tf.get_local_variable("local", [], initializer=tf.zeros_initializer())
        with tf.control_dependencies([train.Scaffold.default_local_init_op()]):
            scaffold = train.Scaffold(local_init_op=local.assign(7.0).op)
        metrics = {"local": (local.read_value(), tf.no_op())}
        return spec._replace(eval_metric_ops=metrics, scaffold=scaffold)

    estimator = Estimator(model_fn, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten)
    estimator.train(ten, [evaluator])
    assert evaluator.metrics_at(10)["local"] == 7.0


def test_variable_that_the_training_lacks_has_its_initial_value(tmp_path, caplog):
    def model_fn(features, labels, mode):
        spec = counting(features, labels, mode)
        if mode == "eval":
            other = tf.get_variable("other", initializer=3.0)
            spec = spec._replace(loss=other * 2)
        return spec

    estimator = Estimator(model_fn, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, ten)
    estimator.train(ten, [evaluator])
    assert evaluator.metrics_at(10)["loss"] == 6.0
    assert "the training has no variables named ['other']" in caplog.text


@pytest.mark.parametrize(
    ("scaffold", "message"),
    [
        (lambda: train.Scaffold(saver=tf.train.Saver(allow_empty=True)), "support custom saver"),
        (lambda: train.Scaffold(init_fn=print), "does not support custom init_fn"),
    ],
)
def test_scaffold_that_would_bring_other_values_is_refused(tmp_path, scaffold, message):
    def model_fn(features, labels, mode):
        spec = counting(features, labels, mode)
        return spec._replace(scaffold=scaffold()) if mode == "eval" else spec

    estimator = Estimator(model_fn, tmp_path)
    with pytest.raises(ValueError, match=message):
        estimator.train(ten, [train.InMemoryEvaluatorHook(estimator, ten)])


def test_other_saveables_in_the_training_are_refused(tmp_path):
    def model_fn(features, labels, mode):
        if mode == "train":
            tensorflow.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        return counting(features, labels, mode)

    estimator = Estimator(model_fn, tmp_path)
    with pytest.raises(ValueError, match="saveables"):
        estimator.train(ten, [train.InMemoryEvaluatorHook(estimator, ten)])


def test_variable_of_another_shape_is_refused(tmp_path):
    def model_fn(features, labels, mode):
        tf.get_variable("w", [2 if mode == "eval" else 3])
        return counting(features, labels, mode)

    estimator = Estimator(model_fn, tmp_path)
    with pytest.raises(ValueError, match="'w' must be of one shape"):
        estimator.train(ten, [train.InMemoryEvaluatorHook(estimator, ten)])


def test_clusters_are_refused(tmp_path):
    class Config:
        num_ps_replicas, num_worker_replicas = 1, 2

    estimator = Estimator(counting, tmp_path)
    estimator.config = Config()
    with pytest.raises(ValueError, match="single machine"):
        train.InMemoryEvaluatorHook(estimator, ten)


@pytest.mark.parametrize("every_n_iter", [0, -1, None])
def test_evaluator_refuses_cadences(tmp_path, every_n_iter):
    with pytest.raises(ValueError, match="every_n_iter"):
        train.InMemoryEvaluatorHook(Estimator(counting, tmp_path), ten, every_n_iter=every_n_iter)


def test_input_fn_that_gives_three_is_refused(tmp_path):
    estimator = Estimator(counting, tmp_path)
    evaluator = train.InMemoryEvaluatorHook(estimator, lambda: (1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="pair"):
        estimator.train(ten, [evaluator])


def test_metrics_are_logged_where_hooks_of_tensorflow_log(tmp_path, caplog):
    estimator = Estimator(counting, tmp_path)
    verbosity = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.get_logger().propagate = True
    try:
        with caplog.at_level(logging.INFO, "tensorflow"):
            estimator.train(ten, [train.InMemoryEvaluatorHook(estimator, ten, every_n_iter=8)])
    finally:
        tf.logging.set_verbosity(verbosity)
    lines = [it for it in caplog.records if "mean_of_features = 4.5" in it.getMessage()]
    assert [it.name for it in lines] == ["tensorflow"] * 3


def test_what_is_no_pair_of_value_and_update_is_named(tmp_path):
    def model_fn(features, labels, mode):
        spec = counting(features, labels, mode)
        return spec._replace(eval_metric_ops={"mean": tf.constant(1.0)})

    estimator = Estimator(counting, tmp_path)
    hook = train.InMemoryEvaluatorHook(Estimator(model_fn, tmp_path), ten)
    with pytest.raises(TypeError, match=r"pairs \(value, update\).*'mean'"):
        estimator.train(ten, [hook])


def test_an_input_fn_that_returns_nothing_is_named(tmp_path):
    estimator = Estimator(counting, tmp_path)
    hook = train.InMemoryEvaluatorHook(estimator, lambda: None)
    with pytest.raises(TypeError, match="input_fn must return .* got None"):
        estimator.train(ten, [hook])


@pytest.mark.parametrize("name", ["Estimator", "train_and_evaluate", "RunConfig"])
def test_what_is_gone_with_the_estimator_says_where_to_read(name):
    with pytest.raises(AttributeError, match=f"{name}.*From TensorFlow 1 and tf.estimator"):
        getattr(train, name)
    assert not hasattr(train, name)
