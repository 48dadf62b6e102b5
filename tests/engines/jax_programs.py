"""Loops of users of JAX, each as a graph: plain JAX, flax linen, equinox, flax nnx.

``python jax_programs.py NAME DIRECTORY LAST_STEP [KILL_AT]`` trains one.
"""

import os
import signal
import sys

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState

import runhooks as rh


def batches(step):
    while True:
        x = np.random.default_rng(step).normal(size=(8, 2)).astype(np.float32)
        yield x, x @ np.array([[2.0], [-3.0]], np.float32)
        step += 1


def params():
    return {"w": jnp.zeros((2, 1)), "b": jnp.zeros(1)}


def sgd(params, x, y):
    def loss_of(params):
        return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), {"loss": loss, "grads": grads}


def plain_graph(data=batches):
    return rh.jax.graph(sgd, params=params, data=data)


def linen_graph(data=batches):
    model, tx = linen.Dense(1), optax.adam(0.1)

    def create_state():
        variables = model.init(jax.random.key(0), jnp.ones((1, 2)))
        return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx)

    @jax.jit
    def train_step(state, x, y):
        def loss_of(params):
            return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

        loss, grads = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=grads), {"loss": loss, "grads": grads}

    return rh.jax.graph(train_step, state=create_state, data=data)


class EquinoxNet(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        self.linear = eqx.nn.Linear(2, 1, key=key)
        self.norm = eqx.nn.BatchNorm(1, "batch", mode="ema")
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.linear(x), state)
        return self.dropout(x, key=key), state


def equinox_graph(data=batches):
    model, state = eqx.nn.make_with_state(EquinoxNet)(jax.random.key(0))
    tx = optax.adam(0.1)

    @eqx.filter_jit
    def train_step(model, state, opt_state, x, y, key):
        def loss_of(model, state):
            keys = jax.random.split(key, len(x))
            axes = {"axis_name": "batch", "in_axes": (0, None, 0), "out_axes": (0, None)}
            predicted, state = jax.vmap(model, **axes)(x, state, keys)
            return jnp.mean((predicted - y) ** 2), state

        (loss, state), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(model, state)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), state, opt_state, {"loss": loss, "grads": grads}

    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return rh.jax.graph(train_step, model=model, state=state, opt_state=opt_state, data=data)


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(self.norm(self.linear(x))))


def nnx_graph(data=batches):
    model = NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, grads)
        return {"loss": loss, "grads": grads}

    return rh.jax.graph(train_step, model=model, optimizer=optimizer, data=data)


GRAPHS = {"plain": plain_graph, "linen": linen_graph, "equinox": equinox_graph, "nnx": nnx_graph}


class KillAt(rh.SessionRunHook):
    """Ends the process as ``kill -9`` does, after a step."""

    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(name, directory, last_step, kill_at=None):
    graph = GRAPHS[name]()
    hooks = [rh.StopAtStepHook(last_step=int(last_step))]
    hooks += [] if kill_at is None else [KillAt(int(kill_at))]
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory, hooks=hooks, save_checkpoint_steps=3
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")


if __name__ == "__main__":
    main(*sys.argv[1:])
