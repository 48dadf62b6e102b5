"""The code on the page about evaluations runs."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import runhooks as rh

PAGE = Path(__file__).parents[1] / "docs" / "evaluation.md"

optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)


def create_state():
    params = {"dense": {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}}
    return {"params": params, "opt_state": optimizer.init(params)}


def scores_of(params, images):
    return images @ params["dense"]["kernel"] + params["dense"]["bias"]


def train_step(state, images, labels):
    def loss_of(params):
        scores = scores_of(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = optimizer.update(grads, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state}, {"loss": loss, "grads": grads}


def batches(step):
    while True:
        yield np.eye(2, dtype=np.float32), np.arange(2)


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {
        "rh": rh,
        "graph": rh.jax.graph(train_step, state=create_state, data=batches),
        "evaluate": lambda state, x, y: (scores_of(state["params"], x).argmax(-1) == y).mean(),
        "test_images": np.eye(2, dtype=np.float32),
        "test_labels": np.arange(2),
    }


def test_the_code_on_the_page_runs(names):
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)  # its hooks are those of the next block
    assert names["session"].global_step == 100
    assert names["evaluation"].metrics_by_step() == {50: {"accuracy": 1.0}, 100: {"accuracy": 1.0}}
    assert names["averaged"].metrics_by_step()[100] == {"ema_accuracy": 1.0}
    assert names["ema"].num_updates == 100
    kernel = rh.load("runs/a", "ema/state/params/dense/kernel")
    assert kernel.shape == (2, 2)
    tags = rh.events.read("runs/a")["."].scalars
    assert {"gradient_norm", "gradient_norm/dense"} <= set(tags)
