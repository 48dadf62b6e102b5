import math
import re

import numpy as np
import optax
import pytest
import torch

import runhooks as rh

METRICS = [1.0, 0.5, 0.5, 0.49999, 0.6, math.nan, 0.4, 0.4, 0.4, 0.4, 0.41, 0.39, 0.39, 0.5, 0.5]
METRICS += [0.5, 0.3, 0.3, 0.3, 0.3, 0.3]


def rates_of_torch(**settings):
    """The rate after each of METRICS, by PyTorch."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
    rates = []
    for metric in METRICS:
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


SETTINGS = [
    {"patience": 2},
    {"patience": 1, "factor": 0.5, "cooldown": 2},
    {"patience": 0, "factor": 0.25, "min_lr": 0.01},
    {"patience": 2, "mode": "max", "threshold": 0.01},
    {"patience": 1, "threshold": 0.05, "threshold_mode": "abs"},
    {"patience": 1, "mode": "max", "threshold": 0.05, "threshold_mode": "abs"},
]


def training(engine):
    """A train_op on the default graph, and the name of its learning rate."""
    step = rh.train.get_or_create_global_step()
    if engine == "jax":
        optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)
        params = np.zeros(2, np.float32)
        state = rh.Variable({"params": params, "opt_state": optimizer.init(params)}, name="state")
        return rh.group(state.assign(state), step.assign_add(1), name="train_op"), (
            "state/opt_state/hyperparams/learning_rate"
        )
    rate = rh.Variable(np.float64(0.5), name="rate")
    return rh.group(rate.assign(rate), step.assign_add(1), name="train_op"), "rate"


LAST = len(METRICS)


def rates(engine, folder=None, stop_at=LAST, *, evaluated=True, **settings):
    """The rate after each step, under a hook that reads one of METRICS at each."""
    found = []
    with rh.Graph(engine=engine).as_default():
        train_op, name = training(engine)
        metric = rh.inputs(lambda step: iter(METRICS[step:]), name="metric")
        x = rh.placeholder("x")
        evaluation = rh.EvaluationHook(
            {"loss": x}, lambda step: [{x: METRICS[step - 1]}], every_n_steps=1
        )
        if evaluated:
            plateau = rh.ReduceOnPlateauHook(evaluation.metric("loss"), name, **settings)
        else:
            plateau = rh.ReduceOnPlateauHook(metric, name, every_n_steps=1, **settings)
        sess = rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=[plateau, evaluation], save_checkpoint_steps=100
        )
        with sess:
            while sess.global_step < stop_at:
                sess.run([train_op, metric])
                raw = sess.run_step_fn(lambda step_context: step_context.session)
                found.append(float(raw.read(name)[name]))
    return found


@pytest.mark.every_engine
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_rates_are_those_of_pytorch(engine, settings):
    expected = rates_of_torch(**settings)
    assert len(set(expected)) > 2
    found = rates(engine, **settings)
    assert found == (pytest.approx(expected, rel=1e-6) if engine == "jax" else expected)


def test_a_tensor_that_is_fetched():
    assert rates("python", evaluated=False, patience=1) == rates_of_torch(patience=1)


@pytest.mark.parametrize("stop_at", [5, 8, 14])
def test_a_resumed_run_has_the_same_rates(tmp_path, stop_at):
    settings = SETTINGS[1]
    before = rates("python", tmp_path, stop_at, **settings)
    assert before + rates("python", tmp_path, **settings) == rates_of_torch(**settings)


def train_torch(hooks, steps, model, optimizer):
    def train_step(x):
        optimizer.step()
        return {"loss": model(x).sum() + METRICS[0]}

    graph = rh.torch.graph(train_step, ["loss"], model=model, optimizer=optimizer)
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(steps):
            sess.run("train_op", {"x": torch.zeros(1, 2)})


def test_all_groups_of_a_torch_optimizer(caplog):
    caplog.set_level("INFO", "runhooks")
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.25}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    plateau = rh.ReduceOnPlateauHook("loss", every_n_steps=2, patience=0, factor=0.5)
    train_torch([plateau], 4, model, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.125]
    (line,) = [line for line in caplog.messages if "learning_rate/1" in line]
    assert line.startswith(
        "ReduceOnPlateauHook reduces 'optimizer/learning_rate/1' from 0.25 to 0.125 at step 4: "
        "the best value of 'loss' is"
    )


def test_one_group_of_a_torch_optimizer():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    plateau = rh.ReduceOnPlateauHook(
        "loss", "optimizer/learning_rate/1", every_n_steps=1, patience=0, factor=0.5
    )
    train_torch([plateau], 2, model, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]


def test_an_evaluation_that_was_dropped_counts_when_it_is_made_up(tmp_path, build_model):
    def evaluate(stop, last):
        with rh.Graph().as_default():
            model = build_model()
            rh.Variable(np.float64(0.5), name="rate")
            x = rh.placeholder("x")

            def feeds(step):
                yield {x: 1.0}
                if stop:
                    sess.request_stop("now")
                yield {x: 1.0}

            evaluation = rh.EvaluationHook({"x": x}, feeds, every_n_steps=1)
            plateau = rh.ReduceOnPlateauHook(evaluation.metric("x"), "rate", patience=0)
            sess = rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path,
                hooks=[plateau, evaluation, rh.StopAtStepHook(last_step=last)],
            )
            with sess:
                raw = sess.run_step_fn(lambda step_context: step_context.session)
                while not sess.should_stop():
                    sess.run(model.train_op)
                return float(raw.read("rate")["rate"])

    assert evaluate(stop=True, last=9) == 0.5
    assert evaluate(stop=False, last=2) == pytest.approx(0.05)


def test_an_evaluation_that_a_recovery_makes_again_counts_again(model, tmp_path):
    rate = rh.Variable(np.float64(0.5), name="rate")
    evaluation = rh.EvaluationHook({"same": rh.call(lambda: 1.0)}, every_n_steps=4)
    plateau = rh.ReduceOnPlateauHook(evaluation.metric("same"), "rate", patience=0)
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, hooks=[plateau, evaluation], save_checkpoint_steps=3
    ) as sess:
        while sess.global_step < 8:
            if sess.global_step == 5 and not sess.recoveries:
                model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
        assert sess.recoveries == 1
        assert sess.run(rate, hooks=False) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 1.0}, "factor must be below 1, got 1.0"),
        ({"factor": 0}, "factor must be above 0"),
        ({"mode": "low"}, "mode must be one of ['min', 'max'], got 'low'"),
        ({"threshold_mode": "low"}, "threshold_mode must be one of ['rel', 'abs'], got 'low'"),
        ({"patience": -1}, "patience must not be negative, got -1"),
        ({"min_lr": -1.0}, "min_lr must not be negative, got -1.0"),
        ({"every_n_steps": None}, "every_n_steps"),
    ],
    ids=str,
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rh.ReduceOnPlateauHook("loss", **{"every_n_steps": 1, **arguments})


def test_a_metric_of_an_evaluation_has_its_own_cadence(model):
    metric = rh.EvaluationHook({"loss": model.loss}, every_n_steps=1).metric("loss")
    with pytest.raises(ValueError, match="every_n_epochs and trigger must be left out"):
        rh.ReduceOnPlateauHook(metric, every_n_steps=1)


def test_a_learning_rate_that_is_not_there_is_reported_at_once(model):
    plateau = rh.ReduceOnPlateauHook("loss:0", "wieghts", every_n_steps=1)
    with pytest.raises(ValueError, match=r"named 'wieghts'; did you mean 'weights'") as error:
        rh.MonitoredSession(hooks=[plateau])
    assert error.value.__notes__ == ["in after_create_session of the hook ReduceOnPlateauHook"]


def test_rate_that_optax_does_not_keep_is_told():
    name = "opt_state/hyperparams/learning_rate"
    state = optax.adam(1e-3).init(np.zeros(2, np.float32))
    graph = rh.jax.graph(lambda opt_state: opt_state, ["opt_state"], opt_state=state)
    plateau = rh.ReduceOnPlateauHook("global_step", name, every_n_steps=1)
    message = rf"is named '{name}'.*optax\.inject_hyperparams"
    with graph.as_default(), pytest.raises(ValueError, match=message):
        rh.MonitoredSession(hooks=[plateau])
