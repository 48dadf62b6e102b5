"""The code on the page about weights runs."""

import re
from pathlib import Path

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from flax import nnx
from flax.training.train_state import TrainState

import runhooks as rh
from tests.metric import Metric

PAGE = Path(__file__).parents[1] / "docs" / "weights.md"


def init_params():
    part = {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)}
    return {"body": part, "head": {"weight": jnp.ones((2, 3)), "bias": jnp.zeros(3)}}


def train(directory, graph, **saver):
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=rh.Scaffold(saver=rh.Saver(**saver)),
            save_checkpoint_steps=100,
            hooks=[rh.StopAtStepHook(last_step=200)],
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")


def step(state):
    return jax.tree.map(lambda leaf: leaf + 1, state), {}


def saved(directory, **variables):
    with rh.Graph("jax").as_default(), rh.Session() as session:
        for name, value in variables.items():
            rh.Variable(value, name=name)
        rh.Saver().save(session, Path(directory) / "model.ckpt", global_step=0)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the code on the page uses, and the runs that it reads."""
    monkeypatch.chdir(tmp_path)
    net, layer = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 2)
    train("runs/torch", rh.torch.graph(lambda: None, model=net))
    keep = [rh.KeepLast(9), rh.KeepBest(Metric("accuracy", {0: 0.0, 100: 1.0}))]
    train(
        "runs/a",
        rh.jax.graph(step, state={"params": init_params()}),
        keep=keep,
    )
    module = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    mlp = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    linen = nn.Dense(3)
    params = linen.init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    state = TrainState.create(apply_fn=linen.apply, params=params, tx=optax.adam(0.1))
    saved("runs/equinox", model=eqx.filter(mlp, eqx.is_array))
    saved("runs/linen", state=state)
    saved("runs/nnx", model=nnx.state(module))
    safetensors.numpy.save_file({"bert.encoder.bias": np.ones(2)}, "model.safetensors")
    new = {"body": init_params()["body"], "head": {"weight": jnp.ones((2, 5)), "bias": jnp.ones(5)}}
    return {
        "rh": rh,
        "np": np,
        "torch": torch,
        "safetensors": safetensors,
        "jax": jax,
        "init_params": init_params,
        "mlp": mlp,
        "state": state,
        "module": module,
        "layer": layer,
        "net": net,
        "graph": rh.jax.graph(step, state={"params": new}),
    }


def test_the_code_runs(names, caplog, capsys):
    page = PAGE.read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    get, like, into_torch, best, start, averages, elsewhere, export = code
    exec(get, names)
    assert names["kernel"].tolist() == [[101, 101], [101, 101]]
    bias = names["state"].params["bias"] + 1
    names["state"] = names["state"].replace(params={**names["state"].params, "bias": bias})
    exec(like, names)
    assert names["state"].params["bias"].tolist() == [0, 0, 0]
    exec(into_torch, names)
    assert torch.equal(names["layer"].weight, names["net"][0].weight)
    exec(best, names)
    assert capsys.readouterr().out == f"{Path('runs/a/model.ckpt-100')} 100 1.0\n"
    with caplog.at_level("INFO", "runhooks"):
        exec(start, names)
    (line,) = (it.message for it in caplog.records if it.message.startswith("initialized from"))
    assert f"```\n{line}\n```" in page
    exec(averages, names)
    exec(elsewhere, names)
    exec(export, names)
    assert safetensors.numpy.load_file("weights.safetensors")["body/kernel"][0, 0] == 101
    with np.load("weights.npz") as found:
        assert found["body/kernel"][0, 0] == 101
    names["net"].load_state_dict(torch.load("model.pt", weights_only=True))
