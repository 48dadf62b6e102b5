"""The example in the docstring of each hook runs."""

import inspect
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import runhooks as rh

HOOKS = [
    name
    for name in rh.__all__
    if name.endswith("_hook")
    or (inspect.isclass(it := getattr(rh, name)) and issubclass(it, rh.SessionRunHook))
]
HOLDS_BACK = {"GlobalStepWaiterHook"}  # until another process has made steps


class Loader:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        assert state == {}


def example_of(name):
    doc = inspect.getdoc(getattr(rh, name))
    body, *_ = doc.split("\nArgs:\n")
    blocks = re.findall(r"(?:^    .*\n?|^\n)+", body, re.MULTILINE)
    (code,) = [block for block in blocks if block.strip()]
    return textwrap.dedent(code)


def train_step(state, rate):
    params = {"weights": state["params"]["weights"] + rate}
    grads = {"weights": np.ones(2)}
    return {**state, "params": params}, {"loss": np.float32(0.5), "grads": grads}


def initial():
    rate = {"hyperparams": {"learning_rate": np.float32(0.1)}}
    return {"params": {"weights": np.zeros(2)}, "opt_state": rate}


@pytest.mark.parametrize("name", HOOKS)
def test_it_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    needs_feed = name == "FeedFnHook"
    data = None if needs_feed else lambda step: iter(np.full(9, 0.1))
    graph = rh.graph(train_step, state=initial, data=data, steps_per_epoch=3)
    with graph.as_default():
        metrics = {"accuracy": rh.call(lambda: 0.9), "loss": rh.call(lambda: 0.5)}
        names = {
            "rh": rh,
            "np": np,
            "accuracy": metrics["accuracy"],
            "test_loss": metrics["loss"],
            "evaluation": rh.EvaluationHook(metrics, every_n_steps=1),
            "loader": Loader(),
            "test_step": lambda x: {"accuracy": 0.9},
            "test_loader": [np.ones(2)],
            "scheduler": SimpleNamespace(step=lambda: None),
            "stop_file": Path("stop"),
        }
        exec(example_of(name), names)
        listed = [*names.get("hooks", ()), *names.values()]
        hooks = list({id(it): it for it in listed if isinstance(it, rh.SessionRunHook)}.values())
        assert len(hooks) > (0 if "hooks" in names else 1)
        if name in HOLDS_BACK:
            return
        hooks.append(rh.StopAtStepHook(last_step=3))
        with rh.MonitoredTrainingSession(checkpoint_dir="runs/a", hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    assert session.global_step == 3 or session.stop_reason.startswith(name)
