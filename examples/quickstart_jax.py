"""Fit a line with JAX and optax: the step does not change, and is compiled as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import runhooks as rh

optimizer = optax.adam(0.05)
x = np.random.default_rng(0).normal(size=(60, 32, 2)).astype(np.float32)  # 60 batches
y = x @ np.array([2, -3], np.float32) + 1
batches = list(zip(x, y, strict=True))


def create_params():
    return {"weights": jnp.zeros(2), "bias": jnp.zeros(())}


def create_opt_state():
    return optimizer.init(create_params())


def loss_of(params, x, y):
    return jnp.mean((x @ params["weights"] + params["bias"] - y) ** 2)


def train_step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    updates, opt_state = optimizer.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    return params, opt_state, {"loss": loss, "grads": grads}


def test_step(params, x, y):
    return {"error": loss_of(params, x, y)}


graph = rh.jax.graph(
    train_step,
    data=batches[:50],
    epochs=10,
    params=create_params,
    opt_state=create_opt_state,
)
with graph.as_default():
    rh.summary.scalar("loss")
    rh.summary.histogram("grads")  # one for each array in grads
    test = rh.EvaluationHook(test_step, batches[50:], every_n_epochs=1)
    report = {"epoch": "epoch", "loss": rh.epoch_mean("loss")}
    hooks = [test, rh.LoggingTensorHook(report, trigger=rh.Trigger(every_epochs=1))]
    rh.train.train("train_op", "runs/jax-line", hooks, save_summaries_steps=10)
