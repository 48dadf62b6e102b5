"""The hooks of runhooks over a torch loop, by name."""

import logging
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import runhooks as rh
from runhooks.testing import read_events


@pytest.fixture(autouse=True)
def _close_writers():
    yield
    rh.summary.FileWriterCache.clear()


def train(graph, batch, *hooks, steps, **arguments):
    with graph.as_default(), rh.MonitoredTrainingSession(hooks=list(hooks), **arguments) as sess:
        while not sess.should_stop() and steps:
            sess.run("train_op", batch)
            steps -= 1
        return sess.global_step


def test_logged_values_read_as_numbers(training, caplog):
    caplog.set_level(logging.INFO, "runhooks")
    hook = rh.LoggingTensorHook(["loss", "learning_rate"], every_n_iter=10)
    train(training.graph(), training.batch, hook, steps=2)
    (line,) = [message for message in caplog.messages if message.startswith("loss")]
    loss, rate = (part.partition(" = ")[2] for part in line.split(", "))
    assert float(loss) == pytest.approx(training.losses[0])
    assert rate == "0.1"


@pytest.mark.parametrize("name", ["gradients/model", "model", "activations/model"])
def test_nan_is_found_in_whole_modules(name):
    torch.manual_seed(0)
    model = nn.LSTM(2, 3)  # returns a tensor and a tuple of two, all of other shapes

    def step(x):
        model.zero_grad()
        model(x)[0].mean().backward()
        with torch.no_grad():
            model.bias_hh_l0[0] = math.nan

    graph = rh.torch.graph(step, model=model)
    with graph.as_default(), pytest.raises(rh.train.NanLossDuringTrainingError, match="NaN in '"):
        with rh.MonitoredSession(hooks=[rh.NanTensorHook(name, late=True)]) as sess:
            for _ in range(3):
                sess.run("train_op", {"x": torch.ones(4, 1, 2)})


def test_five_hooks_ask_for_nothing_on_off_steps(training, tmp_path, hooks_left):
    seen = []

    def step(images, labels):
        seen.append(hooks_left(training.model))
        return training.step(images, labels)

    fetched = []

    class Runs(rh.Session):
        def run(self, fetches, *args):
            fetched.append(fetches)
            return super().run(fetches, *args)

    class Creator(rh.SessionCreator):
        def create_session(self):
            return Runs()

    with rh.torch.graph(step, ["loss"], **training.objects).as_default():
        hooks = [
            rh.LoggingTensorHook(["loss", "gradients/model"], every_n_iter=100),
            rh.StepCounterHook(100, output_dir=tmp_path),
            rh.SummarySaverHook(
                100, output_dir=tmp_path, summary_op=rh.summary.scalar("loss", "loss")
            ),
            rh.ProfilerHook(save_steps=100, output_dir=tmp_path),
            rh.StopAtStepHook(last_step=1000),
        ]
        with rh.MonitoredSession(Creator(), hooks) as sess:
            for _ in range(6):
                sess.run("train_op", training.batch)
    assert fetched[1:] == ["train_op"] * 5
    assert seen == [1, 0, 0, 0, 0, 0]  # before the optimizer's step, for gradients


def test_two_frameworks_at_once(training, tmp_path):
    import jax.numpy as jnp

    with rh.Graph("jax").as_default() as on_jax:
        weights = rh.Variable(jnp.zeros(2), name="weights")
        on_jax_step = rh.train.get_or_create_global_step()
        rh.group(weights.assign_add(jnp.ones(2)), on_jax_step.assign_add(1), name="train_op")
    arguments = {"log_step_count_steps": 2, "save_summaries_steps": None}
    with on_jax.as_default():
        one = rh.MonitoredTrainingSession(checkpoint_dir=tmp_path / "jax", **arguments)
    with training.graph().as_default():
        other = rh.MonitoredTrainingSession(checkpoint_dir=tmp_path / "torch", **arguments)
    with one, other:
        for _ in range(5):
            one.run("train_op")
            other.run("train_op", training.batch)
    for name in ("jax", "torch"):
        rates = [e.step for e in read_events(tmp_path / name) if "step" in e.tag]
        assert rates == [3, 5]
        assert rh.latest_checkpoint(tmp_path / name).endswith("model.ckpt-5")


def test_torch_is_loaded_when_it_is_used_and_one_that_is_missing_says_what_to_install():
    program = """
import sys, runhooks as rh
print('torch' in sys.modules)
sys.modules['torch'] = None
try:
    rh.torch
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert said.splitlines() == [
        "False",
        "the torch engine needs torch: pip install 'runhooks[torch]'",
    ]


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda
def test_off_steps_wait_for_no_device(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    graph = rh.torch.graph(step, ["loss"], model=model, optimizer=optimizer)
    x = torch.randn(8, 64, device="cuda")
    hooks = [
        rh.LoggingTensorHook(["loss"], every_n_iter=100),
        rh.StepCounterHook(100, output_dir=tmp_path),
        rh.StopAtStepHook(last_step=1000),
        rh.CheckpointSaverHook(tmp_path, save_steps=100),
        rh.ProfilerHook(save_steps=100, output_dir=tmp_path),
    ]
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        sess.run("train_op", {"x": x})
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(20):
                sess.run("train_op", {"x": x})
            # What is asked for stays on the device, and is not waited for either.
            names = ["loss", "gradients/model/weight", "activations/model", "global_gradient_norm"]
            fetched = sess.run([*names, "train_op"], {"x": x}, hooks=False)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert all(value.device.type == "cuda" for value in fetched[:4])


@cuda
def test_histograms_are_counted_on_the_device(tmp_path):
    values = torch.randn(10_000, device="cuda")
    engine = rh.Graph("torch").engine
    torch.cuda.set_sync_debug_mode("error")
    try:
        counts = engine.histogram(values)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = engine.histogram(values.cpu())
    assert (counts.counts.cpu().numpy() == expected.counts).all()
    assert float(counts.sum) == pytest.approx(float(expected.sum), abs=1e-3)
