"""What ``rh.epoch_mean`` adds to a step: the same graph without it, with it, and asked for always.

On each engine, the mean of the loss is computed in the step and asked for by a hook at the end of
the epoch, which never comes during the measurement; a hook that asks for it in every run is what
it costs where hooks add up themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

import runhooks as rh
from bench.measure import NEVER, Contender, Effort, Loop
from bench.sessions import Asks, running
from bench.table import Table, measured

WITHOUT, WITH, ASKED = "without", "a mean over the epoch", "asked for in every run"

#: The square arrays that the step of JAX multiplies: it takes some tens of microseconds.
SIZE = 96


def numpy_graph() -> Any:
    def step(weights: Any) -> Any:
        new = weights + 1
        return new, {"loss": new[0]}

    return rh.graph(step, weights=np.zeros(8), steps_per_epoch=NEVER)


def jax_graph() -> Any:
    def step(weights: Any) -> Any:
        new = jnp.tanh(weights @ weights)
        return new, {"loss": new[0, 0]}

    return rh.jax.graph(step, weights=lambda: jnp.eye(SIZE), steps_per_epoch=NEVER)


def torch_graph() -> Any:
    model = torch.nn.Module()
    model.register_buffer("weights", torch.zeros(8))
    weights, loss = model.get_buffer("weights"), torch.ones(())

    def step() -> dict[str, torch.Tensor]:
        weights.add_(1)
        loss.mul_(0.9)
        return {"loss": loss}

    return rh.torch.graph(step, ["loss"], model=model, steps_per_epoch=NEVER)


def no_mean() -> list[rh.SessionRunHook]:
    return []


def at_the_end() -> list[rh.SessionRunHook]:
    return [rh.CallHook(print, [rh.epoch_mean("loss", weight=1)], every_n_epochs=1)]


def in_every_run() -> list[rh.SessionRunHook]:
    return [Asks(rh.epoch_mean("loss", weight=1))]


def of(graph: Any, hooks: Callable[[], list[rh.SessionRunHook]]) -> Loop:
    with graph.as_default():
        return running(rh.MonitoredSession(hooks=hooks()), "train_op")


def contenders(graph: Callable[[], Any], budget: float | None = None) -> list[Contender]:
    return [
        Contender(WITHOUT, of(graph(), no_mean)),
        Contender(WITH, of(graph(), at_the_end), WITHOUT, budget),
        Contender(ASKED, of(graph(), in_every_run), WITHOUT),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    torch.set_num_threads(1)
    yield measured("a mean over the epoch, NumPy", contenders(numpy_graph), effort, 51, 300)
    yield measured("a mean over the epoch, JAX", contenders(jax_graph, 3.0), effort, 51, 100)
    yield measured("a mean over the epoch, PyTorch", contenders(torch_graph), effort, 51, 300)
