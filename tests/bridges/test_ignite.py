"""The bridge to ignite: what hooks see of an engine, and what they do to it."""

import io
import logging
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh
from runhooks.testing import read_events

with warnings.catch_warnings():  # importing ignite uses what torch deprecates
    warnings.simplefilter("ignore")
    from ignite.engine import Engine, Events
    from ignite.engine.deterministic import DeterministicEngine
    from ignite.handlers import Checkpoint, DiskSaver
    from ignite.metrics import Average, RunningAverage

pytestmark = pytest.mark.filterwarnings("ignore")


class Training:
    """A model, its optimizer and schedule, and an engine that trains it."""

    def __init__(self, data, cls=Engine, seed=0, shuffle=True):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, gamma=0.5)
        self.batches = DataLoader(TensorDataset(*data), batch_size=32, shuffle=shuffle)
        self.bad_step = None
        self.norms = []
        self.engine = cls(self.step)
        self.engine.logger.setLevel(logging.CRITICAL)
        RunningAverage(output_transform=lambda it: it["loss"]).attach(self.engine, "mean")

    def step(self, engine, batch):
        if engine.state.iteration == self.bad_step:
            raise ValueError("a bad batch")
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.norms.append(self.model[0].weight.grad.norm().item())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return {"loss": loss.item(), "size": len(images)}

    def hook_up(self, *hooks, output_dir=None, **more):
        objects = {"model": self.model, "optimizer": self.optimizer}
        return rh.bridges.ignite.Hooks(hooks, output_dir, **objects, **more).attach(self.engine)

    def run(self, epochs=2):
        return self.engine.run(self.batches, max_epochs=epochs)


class Log:
    """Keeps what handlers of ignite find in each iteration."""

    def __init__(self, training):
        self.losses, self.rates, self.means = [], [], []
        self._optimizer = training.optimizer
        training.engine.add_event_handler(Events.ITERATION_STARTED, self._before)
        training.engine.add_event_handler(Events.ITERATION_COMPLETED, self._after)

    def _before(self, engine):
        self.rates.append(self._optimizer.param_groups[0]["lr"])

    def _after(self, engine):
        self.losses.append(engine.state.output["loss"])
        self.means.append(engine.state.metrics["mean"])


@pytest.fixture
def training(digits):
    return Training(digits)


def test_values_are_those_of_the_engine(training, recorder, tmp_path):
    hook = recorder(
        loss="loss", rate="learning_rate", mean="metrics/mean", size="output/size", all="output"
    )
    log = Log(training)
    training.hook_up(hook, output_dir=tmp_path, save_summaries_steps=1)
    training.run()
    assert hook.steps == list(range(1, 17))
    assert hook.calls == ["begin", "session 0", "end 16"]
    assert hook.column("loss") == log.losses
    assert hook.column("mean") == log.means
    assert hook.column("rate") == log.rates
    assert hook.column("size") == [32] * 16
    assert hook.values[3]["all"] == {"loss": log.losses[3], "size": 32}
    events = read_events(tmp_path)
    assert [it.value for it in events if it.tag == "loss"] == pytest.approx(log.losses)
    tags = {it.tag for it in events if it.tag}
    assert tags == {"loss", "learning_rate", "metrics/mean"}


def test_parameters_gradients_and_activations_by_name(training, recorder):
    hook = recorder(
        weight="model/0.weight",
        gradient="gradients/model/0.weight",
        norm="global_gradient_norm",
        activation="activations/model/0",
    )
    training.hook_up(hook)
    training.run()
    assert torch.equal(hook.values[-1]["weight"], training.model[0].weight)
    norms = [it["gradient"].norm().item() for it in hook.values]
    assert norms == training.norms
    assert all(it["norm"] >= it["gradient"].norm() for it in hook.values)
    assert hook.values[0]["activation"].shape == (32, 10)


def test_request_stop_makes_the_iteration_the_last(training, recorder):
    hook = recorder()
    training.hook_up(rh.StopAtStepHook(last_step=11), hook)
    state = training.run(5)
    assert state.iteration == 11
    assert hook.calls == ["begin", "session 0", "end 11"]


def test_a_training_resumes_in_mid_epoch_with_the_states_of_the_hooks(
    digits, recorder, raises, tmp_path
):
    def objects(training, hooks):
        return {
            "hooks": hooks,
            "engine": training.engine,
            "model": training.model,
            "optimizer": training.optimizer,
            "schedule": training.schedule,
        }

    whole, first, second = (recorder(loss="loss") for _ in range(3))
    training = Training(digits, DeterministicEngine, shuffle=False)
    training.hook_up(whole)
    training.run()

    training = Training(digits, DeterministicEngine, shuffle=False)
    hooks = training.hook_up(first, raises(12, OSError("cut off")))
    save = Checkpoint(objects(training, hooks), DiskSaver(tmp_path), n_saved=None)
    training.engine.add_event_handler(Events.ITERATION_COMPLETED(every=5), save)
    with pytest.raises(OSError, match="cut off"):
        training.run()

    training = Training(digits, DeterministicEngine, seed=1, shuffle=False)
    hooks = training.hook_up(second)
    # It has NumPy's random state.
    saved = torch.load(tmp_path / "checkpoint_10.pt", weights_only=False)
    Checkpoint.load_objects(objects(training, hooks), saved)
    training.run()
    assert first.calls == ["begin", "session 0", "on_exception cut off"]
    assert second.calls == ["begin", "session 10", "end 16"]
    assert second.runs == 16
    assert second.column("loss") == whole.column("loss")[10:]


def test_the_metrics_of_an_evaluator_reduce_the_learning_rate(digits, training, recorder):
    evaluator = Engine(lambda engine, batch: 1.0)
    Average().attach(evaluator, "error")
    validation, hook = rh.bridges.ValidationHook(), recorder(rate="learning_rate")
    plateau = rh.ReduceOnPlateauHook(validation.metric("error"), factor=0.1, patience=1)
    objects = {"model": training.model, "optimizer": training.optimizer}
    hooks = rh.bridges.ignite.Hooks([plateau, validation, hook], **objects)
    training.schedule.gamma = 1.0
    hooks.attach(training.engine, evaluator)
    training.engine.add_event_handler(
        Events.ITERATION_COMPLETED(every=2), lambda engine: evaluator.run([0])
    )
    training.run(1)
    # The third value is the second that is no better.
    assert hook.column("rate") == pytest.approx([0.5] * 6 + [0.05] * 2)


def test_metrics_that_are_no_numbers_are_left_out(digits, training, recorder, tmp_path):
    evaluator = Engine(lambda engine, batch: 1.0)
    for engine in (evaluator, training.engine):
        Average(output_transform=lambda _: torch.eye(2)).attach(engine, "row")
    Average().attach(evaluator, "error")
    hook = recorder(row="metrics/row", from_step=8)
    validation = rh.bridges.ValidationHook()
    stop = rh.stop_if_lower_hook(validation.metric("error"), threshold=0.0)
    objects = {"model": training.model, "optimizer": training.optimizer}
    hooks = rh.bridges.ignite.Hooks(
        [validation, stop, hook], tmp_path, save_summaries_steps=1, **objects
    )
    hooks.attach(training.engine, evaluator)
    training.engine.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run([0]))
    training.run()
    assert validation.metrics_by_step() == {8: {"error": 1.0}, 16: {"error": 1.0}}
    assert hook.values[-1]["row"].shape == (2,)
    tags = {it.tag for it in read_events(tmp_path) if it.tag}
    assert tags == {"loss", "learning_rate", "metrics/mean"}


@pytest.mark.parametrize("place", ["batch", "hook"])
def test_hooks_hear_of_exceptions(training, recorder, raises, place):
    hook = recorder()
    training.bad_step = 3 if place == "batch" else None
    training.hook_up(hook, *([] if place == "batch" else [raises(2, ValueError("a bad hook"))]))
    with pytest.raises(ValueError, match=f"a bad {place}"):
        training.run()
    assert hook.calls == ["begin", "session 0", f"on_exception a bad {place}"]


def test_an_exception_that_another_handler_takes_is_not_raised(training, recorder):
    hook, taken = recorder(), []
    training.bad_step = 3
    training.hook_up(hook)
    training.engine.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, e: taken.append(e))
    training.run()
    assert [str(it) for it in taken] == ["a bad batch"]
    assert hook.calls == ["begin", "session 0", "on_exception a bad batch"]


@pytest.mark.parametrize("skip_completed", [False, True])
def test_an_engine_that_is_terminated_ends_well(training, recorder, skip_completed):
    hook = recorder()
    training.hook_up(hook)
    training.engine.add_event_handler(
        Events.ITERATION_COMPLETED(once=3), lambda engine: engine.terminate(skip_completed)
    )
    training.run()
    assert hook.calls == ["begin", "session 0", "end 3"]


def test_a_hook_assigns_the_learning_rate(training, recorder):
    class Freeze(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 4:
                run_context.session.assign({"learning_rate": 0.0})

    hook = recorder(rate="learning_rate")
    training.hook_up(hook, Freeze())
    training.run(1)
    assert hook.column("rate") == [0.5] * 3 + [0.25] + [0.0] * 4


def test_hooks_of_the_library_do_their_work(training, tmp_path):
    shown, images = io.StringIO(), training.batches.dataset.tensors[0]
    evaluation = rh.EvaluationHook({"mean": "mean_logit"}, every_n_steps=4)
    final = rh.FinalOpsHook("model/0.bias")
    hooks = [
        final,
        evaluation,
        rh.NanTensorHook("loss", late=True),
        rh.ProfilerHook(save_steps=5, output_dir=tmp_path / "profile"),
        rh.ProgressHook(16, stream=shown),
        rh.ThroughputHook(32, every_n_steps=4, output_dir=tmp_path),
        rh.HookTimesHook(every_n_steps=4, output_dir=tmp_path),
        rh.WatchdogHook(600),
    ]
    handler = training.hook_up(*hooks, output_dir=tmp_path, log_step_count_steps=4)
    with handler.graph.as_default():
        rh.call(lambda: training.model(images).mean().detach(), name="mean_logit")
    training.run()
    assert sorted(evaluation.metrics_by_step()) == [4, 8, 12, 16]
    assert final.final_ops_values.shape == (10,)
    profile = (tmp_path / "profile" / "timeline-5.pt.trace.json").read_text()
    assert "SGD.step" in profile  # the batch itself, between before_run and after_run
    assert "step 16/16" in shown.getvalue()
    tags = {it.tag for it in read_events(tmp_path) if it.tag}
    assert tags >= {"global_step/sec", "throughput/examples_per_sec", "loss"}


@pytest.mark.parametrize("kind", ["asks", "evaluates"])
def test_a_function_that_hooks_ask_for_leaves_training_as_it_was(kind, digits, recorder):
    norms = []
    for is_asked_for in (False, True):
        training = Training(digits)  # which shuffles anew in each epoch

        def draw(training=training):
            training.model.eval()
            return torch.rand(()) + np.random.random()

        asks = recorder(value="drawn")
        hook = asks if kind == "asks" else rh.EvaluationHook({"m": "drawn"}, every_n_steps=1)
        handler = training.hook_up(*[hook] * is_asked_for)
        with handler.graph.as_default():
            rh.call(draw, name="drawn")
        np.random.seed(0)
        torch.manual_seed(1)
        training.run()
        assert training.model.training
        norms.append([*training.norms, np.random.random()])
    assert norms[0] == norms[1]


@pytest.mark.parametrize(
    ("fetch", "message"),
    [
        ("gradients/model/0.wait", "did you mean 'gradients/model/0.weight'"),
        ("output/los", "'output/los' is not in the output of the engine"),
    ],
)
def test_an_unknown_name_is_one_error(training, recorder, fetch, message):
    training.hook_up(recorder(value=fetch))
    with pytest.raises(ValueError, match=message):
        training.run()


def test_the_docs_show_what_runs(training, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {
        "train_step": training.step,
        "model": training.model,
        "optimizer": training.optimizer,
        "batches": training.batches,
    }
    exec(shown("ignite"), known)
    assert {it.tag for it in read_events("runs/a")} >= {"loss", "learning_rate"}
