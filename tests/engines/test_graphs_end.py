"""A graph ends with its last reference, and its state with it: a sweep makes many of them."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import runhooks as rh

BATCHES = [np.float32(1)] * 6


class Asks(rh.SessionRunHook):
    def __init__(self, *names):
        self.names = list(names)

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.names)


def train_step(w, x):
    return w + x, {"loss": w.sum(), "doubled": w * 2}


def jax_step():
    return rh.jax.graph(train_step, w=jnp.zeros(2000), data=BATCHES), []


def jax_hooks():
    graph = rh.jax.graph(train_step, w=jnp.zeros(2000), data=BATCHES)
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.histogram("doubled")
        drawn = rh.inputs([np.float32(2)] * 2)
        mean = rh.call(lambda w, x: w.mean() * x, graph["w"], drawn)
    return graph, [
        Asks("w", "loss", graph["doubled"][3]),
        rh.NanTensorHook("loss"),
        rh.EmaHook("w", decay=0.9),
        rh.EvaluationHook({"mean": mean}, every_n_steps=2),
    ]


def jax_key():
    def step(w, x, key):
        return w + x * jax.random.normal(key), {"loss": w.sum()}

    return rh.jax.graph(step, w=jnp.zeros(3), key=rh.random_key, data=BATCHES), [Asks("loss")]


def jax_nnx():
    from flax import nnx

    def step(model, x):
        loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model), gradients))
        return {"loss": loss}

    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return rh.jax.graph(step, model=model, data=[np.ones((3, 2), np.float32)] * 6), [Asks("loss")]


def several_operations(engine):
    graph = rh.Graph(engine=engine)
    with graph.as_default():
        w = rh.Variable(np.zeros(3, np.float32), name="w")
        count = rh.train.get_or_create_global_step().assign_add(1)
        rh.group(w.assign_add(rh.call(lambda w: w.sum() + 1, w)), count, name="train_op")
    return graph, [rh.StopAtStepHook(6), Asks(w)]


def numpy_step():
    return rh.graph(train_step, w=np.zeros(2), data=BATCHES), [Asks("w", "loss")]


def torch_step():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    data = [torch.ones(3, 2)] * 6
    graph = rh.torch.graph(step, ["loss"], model=model, optimizer=optimizer, data=data)
    return graph, [Asks("model/weight", "gradients/model", "loss")]


MAKERS = {
    "jax": jax_step,
    "jax, hooks that ask": jax_hooks,
    "jax, random keys": jax_key,
    "jax, nnx": jax_nnx,
    "jax, several operations": lambda: several_operations("jax"),
    "numpy": numpy_step,
    "numpy, several operations": lambda: several_operations("python"),
    "torch": torch_step,
}


def trained(make, folder):
    graph, hooks = make()
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=2, save_summaries_steps=2
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")
    return weakref.ref(graph)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_graph_that_has_run_ends_with_its_last_reference(maker, tmp_path):
    graphs = [trained(MAKERS[maker], tmp_path / str(i)) for i in range(2)]
    gc.collect()
    assert [graph() is None for graph in graphs] == [True, True]
