"""How the cost of a step grows with the arrays of the state, 10 to 1,000, in JAX and PyTorch.

A TrainState of flax has scalars, too: its step and the counts of optax. JAX takes it apart, and
makes it anew, in each call of a jitted function; a session does so only for who reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
import torch
from flax.training.train_state import TrainState
from torch import nn

from bench import ours, torch_step
from bench.measure import NEVER, Contender, Effort
from bench.sessions import State, Work, bare, five_hooks, monitored_session
from bench.table import Growth, grown

SIZES = (10, 30, 100, 300, 1000)


VARIES = (
    "The session makes the same calls whatever the number of arrays. JAX's own dispatch of "
    "1,000 arrays varies by more between two bare loops in one process; CLU's actions appear to "
    "cost as much."
)


def initial(leaves: int) -> State:
    return {f"leaf_{number}": jnp.zeros(8) for number in range(leaves)}


def step(state: State) -> State:
    return {name: value + 1 for name, value in state.items()}


def of_jax(leaves: int) -> list[Contender]:
    call, work = jax.jit(step, donate_argnums=0), Work("jax", partial(initial, leaves), step)
    actions = ours.clu(call, initial(leaves), ours.three_actions())
    return [
        Contender(ours.BARE, bare(call, initial(leaves)), role="limit"),
        Contender(ours.FIVE, monitored_session(work, five_hooks), ours.BARE, 1.5, why=VARIES),
        Contender("CLU: three actions, none due", actions, ours.BARE, role="peer", why=ours.COUNTS),
    ]


def train_state(layers: int) -> Any:
    """A state of 6 arrays a layer and 3 numbers, moved by Adam on a schedule."""
    params = {
        f"layer_{number}": {"kernel": jnp.zeros((4, 4)), "bias": jnp.zeros(4)}
        for number in range(layers)
    }
    tx = optax.adam(optax.cosine_decay_schedule(1e-3, NEVER))
    create: Any = TrainState.create
    return create(apply_fn=None, params=params, tx=tx)


def train(state: Any) -> Any:
    grads = jax.tree.map(lambda param: param * 0.1 + 1, state.params)
    return state.apply_gradients(grads=grads)


def of_flax(layers: int) -> list[Contender]:
    call = jax.jit(train, donate_argnums=0)
    work = Work("jax", partial(train_state, layers), train, lambda state: state.step)
    return [
        Contender(ours.BARE, bare(call, train_state(layers)), role="limit"),
        Contender(ours.FIVE, monitored_session(work, five_hooks), ours.BARE, 0),
    ]


def of_torch(leaves: int) -> list[Contender]:
    def make() -> torch_step.Work:
        work = torch_step.trivial()
        parameters = [nn.Parameter(torch.zeros(8)) for _ in range(leaves)]
        work.model.parts = nn.ParameterList(parameters)
        return work._replace(optimizer=torch.optim.SGD(parameters))

    return torch_step.contenders(make, 1.5)


def tables(effort: Effort) -> Iterator[Growth]:
    sizes = effort.sizes(*SIZES)
    yield grown("a step of JAX", "arrays of state", sizes, of_jax, effort, 31, 50)
    layers = effort.sizes(3, 10, 30)
    yield grown("a step of a TrainState of flax", "layers", layers, of_flax, effort, 31, 50)
    yield grown("a step of PyTorch", "parameters", sizes, of_torch, effort, 31, 50)
