"""Fit a line with JAX and optax: the step does not change, and is compiled as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import runhooks as rh

optimizer = optax.adam(0.05)


def create_params():
    return {"weights": jnp.zeros(2), "bias": jnp.zeros(())}


def create_opt_state():
    return optimizer.init(create_params())


def batches(step):  # starts at a step, so a resumed run sees the same data
    while True:
        random = np.random.default_rng(step)
        x = random.normal(size=(32, 2)).astype(np.float32)
        yield x, x @ np.array([2, -3], np.float32) + 1
        step += 1


def loss_of(params, x, y):
    return jnp.mean((x @ params["weights"] + params["bias"] - y) ** 2)


def train_step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    updates, opt_state = optimizer.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    return params, opt_state, {"loss": loss, "grads": grads}


graph = rh.jax.graph(train_step, params=create_params, opt_state=create_opt_state, data=batches)
with graph.as_default():
    rh.summary.scalar("loss")
    rh.summary.histogram("grads")  # one for each array in grads
    hooks = [rh.StopAtStepHook(last_step=500), rh.ProgressHook(500, "loss")]
    with rh.MonitoredTrainingSession(
        checkpoint_dir="runs/jax-line", hooks=hooks, save_summaries_steps=10
    ) as session:
        while not session.should_stop():
            session.run("train_op")
