"""What holds for each of the built-in hooks."""

from unittest.mock import MagicMock, Mock

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
    "EmaHook": lambda path: rh.EmaHook("weights", every_n_steps=10),
    "EvaluationHook": lambda path: rh.EvaluationHook(
        {"loss": "loss:0"}, every_n_steps=10, output_dir=path
    ),
    "ReduceOnPlateauHook": lambda path: rh.ReduceOnPlateauHook(
        "loss:0", "weights", every_n_steps=10
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
    with pytest.raises(RuntimeError, match="[Gg]lobal step") as error:
        hook.begin()
    assert type(hook).__name__ in str(error.value)


def test_it_sleeps_when_it_is_not_due(hook, model, train, monkeypatch):
    steps = []
    for method in ("before_run", "after_run"):
        owner = next(kind for kind in type(hook).__mro__ if method in vars(kind))
        original = getattr(owner, method)

        def recorded(self, run_context, *args, original=original):
            steps.append(run_context.session.global_step)
            return original(self, run_context, *args)

        monkeypatch.setattr(owner, method, recorded)
    with FakeClock():
        train(hook, steps=4)
    assert set(steps) <= {0, 1}


@pytest.mark.every_engine
def test_the_same_hook_serves_a_second_session(hook, train):
    assert train(hook, steps=3) == 3
    assert train(hook, steps=3) == 3


def test_a_hook_that_is_due_on_the_chief_is_due_on_all_that_hold_parts_of_a_model(hook):
    # Another hook may read what it watches only when a hook is due: all ranks do so at once.
    assert hook.runs_on == "all" or hook.asks_on_all


METHODS = ["begin", "after_create_session", "before_run", "after_run", "end"]


@pytest.mark.parametrize("kind", [Mock, MagicMock])
@pytest.mark.parametrize("spec", [None, rh.SessionRunHook, rh.StopAtStepHook(2)])
def test_a_mock_that_has_anything_is_refused(kind, spec, model):
    with pytest.raises(TypeError, match="RecordingHook"):
        rh.MonitoredSession(hooks=[kind(spec=spec)])


@pytest.mark.parametrize("kind", [Mock, MagicMock])
def test_a_mock_with_the_five_methods_is_a_hook(kind, model, tmp_path):
    hook = kind(spec=METHODS)
    hook.before_run.return_value = None
    with rh.MonitoredTrainingSession(hooks=[hook], checkpoint_dir=tmp_path) as sess:
        sess.run(model.train_op)
    assert [name for name, _, _ in hook.method_calls] == METHODS


def test_a_mock_that_asks_for_a_mock_says_what_it_must_return(model):
    with rh.MonitoredSession(hooks=[Mock(spec=METHODS)]) as sess:
        with pytest.raises(TypeError, match=r"must .*, got <Mock") as error:
            sess.run(model.train_op)
    assert error.value.__notes__ == ["in before_run of the hook Mock"]
