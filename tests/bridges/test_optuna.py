"""``PruningHook`` in studies of Optuna."""

import numpy as np
import optuna
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook

pytestmark = pytest.mark.filterwarnings("ignore:.*is experimental")


@pytest.fixture
def study():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.ThresholdPruner(upper=3.5)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(0), pruner=pruner)


def make_graph():
    """A graph whose ``value`` is the global step that a run has led to, times ``factor``."""
    graph = rh.Graph()
    with graph.as_default():
        step = rh.train.get_or_create_global_step()
        made = step.assign_add(1)
        rh.call(
            lambda made, factor: np.float32(made * factor),
            made,
            rh.placeholder("factor"),
            name="value",
        )
        rh.group(made, name="train_op")
    return graph


def train(hooks, factor, steps=10):
    with make_graph().as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(steps):
            sess.run("train_op", {"factor:0": factor})


def test_a_trial_is_pruned_where_optuna_says_so(study):
    recorders = []

    def objective(trial):
        factor = trial.suggest_categorical("factor", [0.25, 1.0])
        recorders.append(RecordingHook())
        train([rh.bridges.optuna.PruningHook(trial, "value", 2), recorders[-1]], factor)
        return factor

    study.enqueue_trial({"factor": 1.0})
    study.enqueue_trial({"factor": 0.25})
    study.optimize(objective, n_trials=2)
    pruned, complete = study.trials
    assert pruned.state is optuna.trial.TrialState.PRUNED
    assert pruned.intermediate_values == {2: 2.0, 4: 4.0}
    assert recorders[0].methods[-1] == "on_exception"
    assert complete.state is optuna.trial.TrialState.COMPLETE
    assert complete.intermediate_values == {step: step / 4 for step in (2, 4, 6, 8, 10)}
    assert recorders[1].methods[-1] == "end"


def test_every_value_of_an_evaluation_is_reported(study):
    def objective(trial):
        evaluation = rh.EvaluationHook({"step": "global_step:0"}, every_n_steps=3)
        metric = evaluation.metric("step")
        train([rh.bridges.optuna.PruningHook(trial, metric), evaluation], 0.0)
        return metric.last()

    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.intermediate_values == {3: 3.0, 6: 6.0}


def test_a_step_that_is_made_again_is_reported_once(study):
    trial = study.ask()
    hook = rh.bridges.optuna.PruningHook(trial, "value", 1)
    train([hook], 0.5, steps=3)
    train([hook], 0.25, steps=4)
    study.tell(trial, 0.0)
    assert study.trials[0].intermediate_values == {1: 0.5, 2: 1.0, 3: 1.5, 4: 1.0}


def test_the_docs_show_what_runs(shown, study):
    known = {"study": study, "make_graph": make_graph}
    exec(shown("Optuna"), known)
    assert {it.state for it in study.trials} == {optuna.trial.TrialState.PRUNED}
