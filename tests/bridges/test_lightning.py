"""The bridge to Lightning: what hooks see of a training, and what they do to it."""

import csv
import logging
from pathlib import Path
from types import SimpleNamespace

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import runhooks as rh
from runhooks.testing import read_events

# Lightning warns of small trainings and of much else.
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(lightning.LightningModule):
    def __init__(self, data, bad_batch=None):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 10))
        self.data = data
        self.bad_batch = bad_batch
        self.gradient_norms = []

    def training_step(self, batch, index):
        if index == self.bad_batch:
            raise ValueError("a bad batch")
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_before_optimizer_step(self, optimizer):
        self.gradient_norms.append(self.net[0].weight.grad.norm().item())

    def train_dataloader(self):
        return StatefulDataLoader(TensorDataset(*self.data), batch_size=32)


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.fixture
def model(digits):
    return Model(digits)


@pytest.fixture
def fit(tmp_path):
    def run(model, *callbacks, ckpt_path=None, logger=False, **more):
        trainer = lightning.Trainer(
            accelerator="cpu",
            callbacks=list(callbacks),
            logger=logger,
            default_root_dir=tmp_path,
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": 2, "log_every_n_steps": 1, "enable_checkpointing": False, **more},
        )
        trainer.fit(model, ckpt_path=ckpt_path)
        return trainer

    return run


def logged(logger):
    """What Lightning has logged, a dict for each step."""
    merged = {}
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            filled = {name: float(value) for name, value in row.items() if value}
            merged.setdefault(filled["step"], {}).update(filled)
    return [merged[step] for step in sorted(merged)]


def test_values_are_those_of_lightnings_own_logger(model, fit, recorder, tmp_path):
    hook = recorder(loss="loss", logged="metrics/train_loss", rate="learning_rate")
    logger = CSVLogger(tmp_path / "csv")
    hooks = rh.bridges.lightning.Hooks([hook], tmp_path / "run", save_summaries_steps=1)
    fit(model, hooks, LearningRateMonitor("step"), logger=logger)
    rows = logged(logger)
    assert hook.steps == list(range(1, 17))
    assert hook.calls == ["begin", "session 0", "end 16"]
    assert hook.column("logged") == [pytest.approx(row["train_loss"]) for row in rows]
    assert hook.column("loss") == hook.column("logged")
    assert hook.column("rate") == [pytest.approx(row["lr-Adam"]) for row in rows]
    assert len(set(hook.column("rate"))) > 1
    events = read_events(tmp_path / "run")
    curve = [(it.step, it.value) for it in events if it.tag == "metrics/train_loss"]
    assert curve == list(zip(hook.steps, hook.column("logged"), strict=True))
    assert {it.tag for it in events} >= {"loss", "learning_rate", "metrics/train_loss"}


def test_request_stop_makes_the_batch_the_last(model, fit, recorder):
    hook = recorder()
    hooks = rh.bridges.lightning.Hooks([rh.StopAtStepHook(last_step=11), hook])
    trainer = fit(model, hooks, max_epochs=5)
    assert trainer.global_step == 11
    assert hook.steps == list(range(1, 12))


def test_batches_that_accumulate_are_runs(model, fit, recorder):
    hook = recorder(loss="loss")
    fit(model, rh.bridges.lightning.Hooks([hook]), max_epochs=1, accumulate_grad_batches=4)
    assert hook.steps == [0, 0, 0, 1, 1, 1, 1, 2]


def test_a_batch_that_is_skipped_has_no_loss(digits, fit, recorder, tmp_path):
    class Skips(Model):
        def training_step(self, batch, index):
            return None if index % 4 == 0 else super().training_step(batch, index)

        def on_before_optimizer_step(self, optimizer):
            pass

    tracked, hook = [], recorder(loss="loss")
    hooks = [
        hook,
        rh.NanTensorHook("loss"),
        rh.LoggingTensorHook(["loss", "global_gradient_norm"], every_n_iter=1),
        rh.bridges.tracking.TrackingHook(lambda it, step: tracked.append(step), ["loss"], 1),
    ]
    fit(
        Skips(digits),
        rh.bridges.lightning.Hooks(hooks, tmp_path, save_summaries_steps=1),
        max_epochs=1,
    )
    assert [it["loss"] is None for it in hook.values] == [True, *[False] * 3] * 2
    assert tracked == [2, 3, 4, 6, 7, 8]
    assert [it.step for it in read_events(tmp_path) if it.tag == "loss"] == tracked


def test_a_loss_that_no_step_returns_is_one_error(digits, fit, recorder):
    class Own(Model):
        automatic_optimization = False

        def training_step(self, batch, index):
            super().training_step(batch, index)

    with pytest.raises(ValueError, match="'loss' is not in this batch of Lightning"):
        fit(Own(digits), rh.bridges.lightning.Hooks([recorder(loss="loss")]))


def test_a_training_resumes_in_mid_epoch_with_the_states_of_the_hooks(
    digits, fit, recorder, raises, tmp_path
):
    whole = recorder(loss="loss")
    torch.manual_seed(1)
    fit(Model(digits), rh.bridges.lightning.Hooks([whole]))

    def save():
        return ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1)

    first, second = recorder(loss="loss"), recorder(loss="loss")
    cut = raises(12, OSError("cut off"))
    torch.manual_seed(1)
    with pytest.raises(OSError, match="cut off"):
        hooks = rh.bridges.lightning.Hooks([first, cut])
        fit(Model(digits), hooks, save(), enable_checkpointing=True)
    path = tmp_path / "step=10.ckpt"
    hooks = rh.bridges.lightning.Hooks([second])
    fit(Model(digits), hooks, save(), ckpt_path=path, enable_checkpointing=True)
    assert first.calls == ["begin", "session 0", "on_exception cut off"]
    assert second.calls == ["begin", "session 10", "end 16"]
    assert second.steps == list(range(11, 17))
    assert second.runs == 16
    assert second.column("loss") == whole.column("loss")[10:]


def test_metrics_of_a_validation_are_fetched_but_not_written_again(digits, fit, recorder, tmp_path):
    class Validating(Model):
        val_dataloader = Model.train_dataloader

    hook = recorder(8, val="metrics/val_loss")
    hooks = rh.bridges.lightning.Hooks([hook], tmp_path, save_summaries_steps=1)
    trainer = fit(Validating(digits), hooks)
    assert len(set(hook.column("val"))) == 1
    assert hook.column("val")[0] != float(trainer.callback_metrics["val_loss"])
    assert "metrics/val_loss" not in {it.tag for it in read_events(tmp_path)}


def test_a_validation_stops_the_training_where_lightnings_early_stopping_does(
    digits, fit, tmp_path
):
    class Validating(Model):
        val_dataloader = Model.train_dataloader

        def validation_step(self, batch, index):
            self.log("val_loss", float(-min(self.trainer.global_step, 24)))  # no better from there

    validation = rh.bridges.ValidationHook(tmp_path / "eval")
    stop = rh.stop_if_no_decrease_hook(validation.metric("val_loss"), max_steps_without_decrease=16)
    hooks = rh.bridges.lightning.Hooks([validation, stop])
    stopped = [
        fit(Validating(digits), callback, max_epochs=9).global_step
        for callback in (hooks, EarlyStopping("val_loss", patience=2))
    ]
    assert stopped == [40, 40]
    written = [(it.step, it.value) for it in read_events(tmp_path / "eval") if it.tag]
    assert written == [(8, -8.0), (16, -16.0), (24, -24.0), (32, -24.0), (40, -24.0)]


def test_a_validation_has_what_it_logs_by_the_name_of_what_batches_log(digits, fit, tmp_path):
    class Validating(Model):
        val_dataloader = Model.train_dataloader

        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            self.log("loss", float(self.trainer.global_step))  # no better from the first

    validation = rh.bridges.ValidationHook()
    stop = rh.stop_if_no_decrease_hook(validation.metric("loss"), max_steps_without_decrease=16)
    hooks = rh.bridges.lightning.Hooks([validation, stop], tmp_path, save_summaries_steps=1)
    stopped = [
        fit(Validating(digits), callback, max_epochs=9).global_step
        for callback in (hooks, EarlyStopping("loss", patience=2))
    ]
    assert stopped == [24, 24]
    assert validation.metrics_by_step() == {step: {"loss": step} for step in (8, 16, 24)}
    written = {it.step: it.value for it in read_events(tmp_path) if it.tag == "metrics/loss"}
    assert sorted(written) == list(range(1, 25))
    assert max(written.values()) < 8


def test_a_validation_that_does_not_log_a_metric_has_no_value_of_it(digits, fit, recorder):
    class Validating(Model):
        val_dataloader = Model.train_dataloader

        def validation_step(self, batch, index):
            self.log("val_loss", 1.0)
            if self.current_epoch % 2 == 0:
                self.log("val_rare", float(self.current_epoch))

    validation, hook = rh.bridges.ValidationHook(), recorder(rate="learning_rate")
    rare = validation.metric("val_rare")
    plateau = rh.ReduceOnPlateauHook(rare, factor=0.1, patience=1)
    model = Validating(digits)
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=0.5)
    fit(model, rh.bridges.lightning.Hooks([validation, plateau, hook]), max_epochs=6)
    assert rare.evaluation.metrics_by_step()[16].keys() == {"val_loss"}
    # The third value is the second that is no better.
    assert hook.column("rate") == pytest.approx([0.5] * 40 + [0.05] * 8)


@pytest.mark.parametrize("place", ["batch", "callback", "interrupt"])
def test_hooks_hear_of_exceptions(digits, fit, recorder, place):
    class Bad(lightning.Callback):
        def on_train_batch_end(self, *args):
            raise KeyboardInterrupt if place == "interrupt" else ValueError("a bad callback")

    hook = recorder()
    model = Model(digits, bad_batch=2 if place == "batch" else None)
    others = [] if place == "batch" else [Bad()]
    with pytest.raises((ValueError, SystemExit)):
        fit(model, rh.bridges.lightning.Hooks([hook]), *others)
    said = "" if place == "interrupt" else f"a bad {place}"
    assert hook.calls == ["begin", "session 0", f"on_exception {said}"]


def test_several_processes_are_refused(model):
    hooks = rh.bridges.lightning.Hooks([])
    with pytest.raises(ValueError, match="this training has 2"):
        hooks.setup(SimpleNamespace(world_size=2), model, "fit")


def test_the_docs_show_what_runs(model, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(shown("Lightning"), {"model": model})
    assert {it.tag for it in read_events("runs/a")} >= {"loss", "metrics/train_loss"}
