"""Hooks in a loop over accelerate."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh
from runhooks.testing import read_events

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

pytestmark = pytest.mark.filterwarnings("ignore")


class Training:
    def __init__(self, data, folder, accumulate=1, seed=0):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        batches = DataLoader(TensorDataset(*data), batch_size=32)
        self.accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=accumulate,
            project_config=ProjectConfiguration(str(folder), automatic_checkpoint_naming=True),
        )
        self.model, self.optimizer, self.batches = self.accelerator.prepare(
            model, optimizer, batches
        )
        self.losses, self.norms = [], []

    def hooks(self, *hooks, output_dir=None, **more):
        objects = {"model": self.model, "optimizer": self.optimizer}
        return rh.bridges.accelerate.Hooks(self.accelerator, hooks, output_dir, **objects, **more)

    def run(self, hooks, skip=0, save_at=None):
        batches = self.accelerator.skip_first_batches(self.batches, skip)
        with hooks:
            for images, labels in batches:
                if hooks.should_stop:
                    break
                with hooks.batch() as values, self.accelerator.accumulate(self.model):
                    loss = nn.functional.cross_entropy(self.model(images), labels)
                    values["loss"], values["size"] = loss, len(images)
                    self.accelerator.backward(loss)
                    self.losses.append(loss.item())
                    self.norms.append(self.model[0].weight.grad.norm().item())
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                if hooks.global_step == save_at:
                    self.accelerator.save_state()


@pytest.fixture
def training(digits, tmp_path):
    return Training(digits, tmp_path)


def test_values_of_a_batch(training, recorder, tmp_path):
    hook = recorder(
        loss="loss",
        size="metrics/size",
        rate="learning_rate",
        weight="model/0.weight",
        gradient="gradients/model/0.weight",
    )
    training.run(training.hooks(hook, output_dir=tmp_path / "run", save_summaries_steps=1))
    assert hook.steps == list(range(1, 9))
    assert hook.calls == ["begin", "session 0", "end 8"]
    assert hook.column("loss") == training.losses
    assert hook.column("size") == [32] * 8
    assert hook.column("rate") == [0.01] * 8
    assert [it["gradient"].norm().item() for it in hook.values] == training.norms
    assert torch.equal(hook.values[-1]["weight"], training.model[0].weight)
    events = read_events(tmp_path / "run")
    assert [it.value for it in events if it.tag == "loss"] == pytest.approx(training.losses)


def test_a_group_that_is_added_later_has_its_rate_among_the_others(training, recorder):
    hook = recorder(rate="learning_rate")

    class Adds(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 3:
                more = {"params": [nn.Parameter(torch.ones(1))], "lr": 0.5}
                training.optimizer.optimizer.add_param_group(more)

    training.run(training.hooks(hook, Adds()))
    assert [it["rate"] for it in hook.values] == [0.01] * 3 + [[0.01, 0.5]] * 5


def test_the_global_step_counts_updates(digits, recorder, tmp_path):
    hook, training = recorder(loss="loss"), Training(digits, tmp_path, accumulate=4)
    training.run(training.hooks(hook))
    assert hook.steps == [0, 0, 0, 1, 1, 1, 1, 2]
    assert hook.column("loss") == training.losses


def test_request_stop_is_heard(training, recorder):
    hook = recorder()
    training.run(training.hooks(rh.StopAtStepHook(last_step=3), hook))
    assert hook.calls == ["begin", "session 0", "end 3"]


def test_a_training_resumes_in_mid_epoch_with_the_states_of_the_hooks(
    digits, recorder, raises, tmp_path
):
    whole, first, second = (recorder(loss="loss") for _ in range(3))
    training = Training(digits, tmp_path / "whole")
    training.run(training.hooks(whole))
    training = Training(digits, tmp_path / "cut")
    hooks = training.hooks(first, raises(6, OSError("cut off")))
    with pytest.raises(OSError, match="cut off"):
        training.run(hooks, save_at=4)
    training = Training(digits, tmp_path / "cut", seed=1)
    hooks = training.hooks(second)
    training.accelerator.load_state(str(tmp_path / "cut" / "checkpoints" / "checkpoint_0"))
    training.run(hooks, skip=4)
    assert first.calls == ["begin", "session 0", "on_exception cut off"]
    assert second.calls == ["begin", "session 4", "end 8"]
    assert second.runs == 8
    assert second.column("loss") == whole.column("loss")[4:]


def test_hooks_hear_of_exceptions(training, recorder):
    hook = recorder()
    with pytest.raises(ValueError, match="a bad batch"):
        with training.hooks(hook) as hooks, hooks.batch():
            raise ValueError("a bad batch")
    assert hook.calls == ["begin", "session 0", "on_exception a bad batch"]


@pytest.fixture
def docs(training, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {
        "accelerator": training.accelerator,
        "model": training.model,
        "optimizer": training.optimizer,
        "batches": training.batches,
        "loss_of": nn.functional.cross_entropy,
    }
    return shown("accelerate"), known


def test_the_docs_show_what_runs(docs):
    exec(*docs)
    assert {it.tag for it in read_events("runs/a")} >= {"loss", "learning_rate"}


@pytest.mark.parametrize("last", [3, 0])
def test_a_training_that_has_finished_makes_no_update_in_the_loop_of_the_docs(docs, last):
    program, known = docs
    hooks = f"[rh.StopAtStepHook(last_step={last}), "
    exec(program.replace("[rh.NanTensorHook", f"{hooks}rh.NanTensorHook"), known)
    assert known["hooks"].global_step == last
