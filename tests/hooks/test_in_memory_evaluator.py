from typing import Any, NamedTuple

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook, read_events
from runhooks.trigger import Trigger

DATA = [(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)]  # the second is 2 x, the first is not


class Spec(NamedTuple):
    loss: Any
    train_op: Any = None
    eval_metric_ops: Any = None


def local(name):
    return rh.Variable(0.0, name=name, collections=[rh.GraphKeys.LOCAL_VARIABLES])


class Estimator:
    """Learns the factor of y = w x, which it takes to be a quarter larger after each step."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.modes = []

    def model_fn(self, features, labels, mode):
        self.modes.append(mode)
        w = rh.Variable(np.float32(0.0), name="w")
        loss = rh.call(lambda w, x, y: (w * x - y) ** 2, w, features, labels, name="loss")
        if mode == "train":
            step = rh.train.get_or_create_global_step()
            return Spec(loss, train_op=rh.group(loss, w.assign_add(0.25), step.assign_add(1)))
        right, count = local("right"), local("count")
        hit = rh.call(lambda w, x, y: abs(w * x - y) < 0.25, w, features, labels) * 1.0
        update = rh.group(right.assign_add(hit), count.assign_add(1.0))
        return Spec(loss, eval_metric_ops={"accuracy": (right / count, update)})

    def eval_dir(self, name=None):
        return str(self.tmp_path / (f"eval_{name}" if name else "eval"))


@pytest.fixture
def estimator(tmp_path):
    return Estimator(tmp_path)


@pytest.fixture
def train_op(graph, estimator):
    x, y = rh.inputs(lambda step: iter([(1.0, 2.0)] * 100), num_outputs=2)
    return estimator.model_fn(x, y, "train").train_op


def loop(hook, op, steps, **kwargs):
    with rh.MonitoredSession(hooks=[hook], **kwargs) as sess:
        for _ in range(steps):
            sess.run(op)


def points(path):
    return [(event.step, event.tag, event.value) for event in read_events(path)]


@pytest.mark.every_engine
def test_at_the_start_every_n_steps_and_at_the_end(estimator, train_op, tmp_path):
    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=4)
    loop(hook, train_op, 9)
    assert estimator.modes == ["train", "eval"]  # one graph for all evaluations
    losses = {step: sum((0.25 * step * x - y) ** 2 for x, y in DATA) / 3 for step in (0, 4, 8, 9)}
    accuracy = {0: 0.0, 4: 1 / 3, 8: 2 / 3, 9: 0.0}
    assert rh.read_eval_metrics(tmp_path / "eval") == {
        step: {"accuracy": pytest.approx(accuracy[step]), "loss": pytest.approx(losses[step])}
        for step in (0, 4, 8, 9)
    }


def test_the_end_is_not_evaluated_twice(estimator, train_op, tmp_path):
    loop(rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=4), train_op, 4)
    assert [step for step, tag, _ in points(tmp_path / "eval") if tag == "loss"] == [0, 4]


def test_a_trigger_alone_says_when(estimator, train_op, tmp_path):
    trigger = Trigger(on_steps=[2, 3])
    loop(rh.InMemoryEvaluatorHook(estimator, lambda: DATA, trigger=trigger), train_op, 5)
    assert [step for step, tag, _ in points(tmp_path / "eval") if tag == "loss"] == [2, 3]


def test_a_resumed_run_evaluates_at_the_steps_of_an_undisturbed_one(estimator, train_op, tmp_path):
    for _ in range(2):
        hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=4)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path / "run"), hooks=[hook], save_summaries_steps=None
        ) as sess:
            for _ in range(5):
                sess.run(train_op)
    assert [step for step, tag, _ in points(tmp_path / "eval") if tag == "loss"] == [
        *(0, 4, 5),  # 5 is the end of the first run, and 10 that of the second
        *(8, 10),
    ]


def test_steps_and_name(estimator, train_op, tmp_path, caplog):
    caplog.set_level("INFO", "runhooks")
    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, steps=2, name="few", every_n_iter=8)
    loop(hook, train_op, 8)
    found = hook.metrics_at(8)
    assert found == {"accuracy": 0.5, "loss": 0.5}  # at w = 2, of (1, 1) and (2, 4)
    assert hook.metrics_at(7) == {}
    assert points(tmp_path / "eval_few")[-2:] == [(8, "accuracy", 0.5), (8, "loss", 0.5)]
    line = "InMemoryEvaluatorHook(few) at step 8: accuracy = 0.5, loss = 0.5 (2 runs, "
    assert any(message.startswith(line) for message in caplog.messages)


def test_model_dir_of_an_estimator_without_eval_dir(estimator, train_op, tmp_path):
    class Bare:
        model_fn, model_dir = estimator.model_fn, tmp_path

    loop(rh.InMemoryEvaluatorHook(Bare(), lambda: DATA, name="bare"), train_op, 1)
    assert {step for step, _, _ in points(tmp_path / "eval_bare")} == {0, 1}


def test_what_the_model_and_the_input_take(graph, train_op):
    class WithParams:
        def __init__(self):
            self.params = {"scale": 3.0}

        def model_fn(self, features, params):
            return Spec(features * params["scale"])

    modes = []

    def input_fn(mode, params):
        modes.append((mode, params))
        return lambda step: iter(DATA)

    hook = rh.InMemoryEvaluatorHook(WithParams(), input_fn, every_n_iter=100)
    loop(hook, train_op, 1)
    assert hook.metrics_at(1) == {"loss": 6.0}
    assert modes == [("eval", {"scale": 3.0})]


def test_a_model_that_takes_all(train_op):
    class Everything:
        config = "config"

        def model_fn(self, **given):
            self.given = given
            return Spec(given["features"])

    everything = Everything()
    loop(rh.InMemoryEvaluatorHook(everything, lambda: DATA), train_op, 1)
    assert everything.given.keys() == {"features", "labels", "mode", "params", "config"}
    assert everything.given["config"] == "config"


def test_its_hooks(estimator, train_op):
    inner = RecordingHook(fetches="loss:0")
    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, hooks=[inner], every_n_iter=8)
    loop(hook, train_op, 8)
    run = ["before_run", "after_run"]
    evaluation = ["after_create_session", *run * 3, "before_run", "end"]  # there is no fourth pair
    assert inner.methods == ["begin", *evaluation * 2]
    assert [float(loss) for loss in inner.results] == [1.0, 16.0, 36.0, 1.0, 0.0, 0.0]


@pytest.mark.every_engine
def test_the_training_goes_on_unharmed(estimator, train_op):
    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=1)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(4):
            sess.run(train_op)
        assert sess.run("w:0", hooks=False) == 1.0
        assert sess.global_step == 4


def test_its_time_does_not_count_in_steps_per_second(estimator, train_op, fake_clock, tmp_path):
    class Takes(rh.SessionRunHook):
        def __init__(self, secs):
            self.secs = secs

        def before_run(self, run_context):
            fake_clock.advance(self.secs)

    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, hooks=[Takes(50)], every_n_iter=2)
    counter = rh.StepCounterHook(4, output_dir=tmp_path / "speed")
    with rh.MonitoredSession(hooks=[Takes(1), hook, counter]) as sess:
        for _ in range(9):
            sess.run(train_op)
    assert [value for _, _, value in points(tmp_path / "speed")] == [1.0, 1.0]


def test_a_variable_that_the_training_lacks(train_op, caplog):
    class Other:
        def model_fn(self, features):
            return Spec(features * rh.Variable(2.0, name="other"))

    hook = rh.InMemoryEvaluatorHook(Other(), lambda: DATA, every_n_iter=1)
    loop(hook, train_op, 2)
    assert hook.metrics_at(2) == {"loss": 4.0}
    warnings = [line for line in caplog.messages if "the training has no variables named" in line]
    assert len(warnings) == 1
    assert "named ['other']: the evaluation uses their initial values" in warnings[0]


@pytest.mark.every_engine
def test_a_variable_of_another_shape(train_op):
    class Other:
        def model_fn(self, features):
            return Spec(features * rh.Variable(np.zeros(2), name="w")[0])

    with pytest.raises(ValueError, match="'w' must be") as error:
        loop(rh.InMemoryEvaluatorHook(Other(), lambda: DATA), train_op, 1)
    assert "in the evaluation at step 0" in error.value.__notes__


def test_an_input_that_gives_nothing(estimator, train_op):
    with pytest.raises(RuntimeError, match="input_fn"):
        loop(rh.InMemoryEvaluatorHook(estimator, lambda: iter(())), train_op, 1)


def test_arguments(estimator, train_op):
    with pytest.raises(ValueError, match="every_n_iter"):
        rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=0)
    with pytest.raises(ValueError, match="every_n_iter and trigger"):
        rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=None)
    with pytest.raises(ValueError, match="steps"):
        rh.InMemoryEvaluatorHook(estimator, lambda: DATA, steps=0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda x: Spec(None), "loss"),
        (lambda x: Spec(x, None, {"loss": (x, x)}), "eval_metric_ops"),
    ],
)
def test_models_that_cannot_be_evaluated(train_op, spec, message):
    class Model:
        def model_fn(self, features):
            return spec(features)

    with pytest.raises(ValueError, match=message):
        loop(rh.InMemoryEvaluatorHook(Model(), lambda: DATA), train_op, 1)


def test_model_that_uses_nothing_of_its_input_is_evaluated_in_one_run(train_op, estimator):
    def model_fn(features, labels, mode):
        return Spec(rh.Variable(np.float32(7.0), name="constant") * 1.0)

    estimator.model_fn = model_fn
    hook = rh.InMemoryEvaluatorHook(estimator, lambda: DATA, every_n_iter=1)
    loop(hook, train_op, 1)
    assert hook.metrics_at(1) == {"loss": 7.0}


def test_model_that_returns_something_else_is_told(train_op, estimator):
    estimator.model_fn = lambda features, labels, mode: {"loss": features}
    with pytest.raises(TypeError, match="model_fn"):
        loop(rh.InMemoryEvaluatorHook(estimator, lambda: DATA), train_op, 1)


def test_evaluation_that_a_stop_ends_is_made_up_by_the_resumed_run(train_op, estimator, tmp_path):
    stop = []  # functions that the second element of an evaluation calls

    def data(step):
        yield DATA[0]
        for act in stop:
            act("enough")
        yield from DATA[1:]

    hook = rh.InMemoryEvaluatorHook(estimator, lambda: data, every_n_iter=2)
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]) as sess:
        sess.run(train_op)
        stop.append(sess.request_stop)
        sess.run(train_op)
        assert hook.metrics_at(2) == {}
    stop.clear()
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]):
        assert hook.metrics_at(2).keys() == {"loss", "accuracy"}
