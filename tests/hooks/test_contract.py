"""What holds for each of the built-in hooks."""

from types import SimpleNamespace

import pytest

import runhooks as rh
from runhooks.testing import FakeClock

MAKE = {
    "StopAtStepHook": lambda path: rh.StopAtStepHook(last_step=5),
    "StepCounterHook": lambda path: rh.StepCounterHook(10, output_dir=path),
    "SummarySaverHook": lambda path: rh.SummarySaverHook(10, output_dir=path, summary_op=[]),
    "LoggingTensorHook": lambda path: rh.LoggingTensorHook([], every_n_iter=10),
    "CheckpointSaverHook": lambda path: rh.CheckpointSaverHook(path, save_steps=10),
    "ProgressHook": lambda path: rh.ProgressHook(100, ["loss:0"]),
    "ThroughputHook": lambda path: rh.ThroughputHook(32, every_n_steps=10, output_dir=path),
    "HookTimesHook": lambda path: rh.HookTimesHook(10, output_dir=path),
    "ProfilerHook": lambda path: rh.ProfilerHook(10, output_dir=path),
    "EvaluationHook": lambda path: rh.EvaluationHook(
        {"loss": "loss:0"}, every_n_steps=10, output_dir=path
    ),
    "InMemoryEvaluatorHook": lambda path: rh.InMemoryEvaluatorHook(
        SimpleNamespace(
            model_fn=lambda features: SimpleNamespace(loss=features, eval_metric_ops={})
        ),
        lambda: [(1.0, 1.0)],
        every_n_iter=10,
    ),
    "GarbageCollectionHook": lambda path: rh.GarbageCollectionHook(10),
    "GlobalStepWaiterHook": lambda path: rh.GlobalStepWaiterHook(0),
    "stop_if_higher_hook": lambda path: rh.stop_if_higher_hook(
        None, "loss", 1.0, path, run_every_secs=None, run_every_steps=10
    ),
}


@pytest.fixture(params=MAKE)
def hook(request, tmp_path):
    return MAKE[request.param](tmp_path)


def test_begin_twice_adds_nothing_the_second_time(hook, graph, model):
    hook.begin()
    operations = graph.get_operations()
    hook.begin()
    assert graph.get_operations() == operations


def test_a_graph_without_global_step_is_refused(hook, without_global_step):
    if isinstance(hook, rh.LoggingTensorHook):
        hook.begin()  # it counts runs
        return
    with pytest.raises(RuntimeError, match="Global step should be created to use") as error:
        hook.begin()
    assert type(hook).__name__ in str(error.value)


def test_it_sleeps_when_it_is_not_due(hook, model, train, monkeypatch):
    steps = []
    for method in ("before_run", "after_run"):
        original = getattr(type(hook), method)

        def recorded(self, run_context, *args, original=original):
            steps.append(run_context.session.global_step)
            return original(self, run_context, *args)

        monkeypatch.setattr(type(hook), method, recorded)
    with FakeClock():
        train(hook, steps=4)
    assert set(steps) <= {0, 1}


def test_the_same_hook_serves_a_second_session(hook, train):
    assert train(hook, steps=3) == 3
    assert train(hook, steps=3) == 3
