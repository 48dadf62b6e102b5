"""How the cost of a step grows with the arrays of the state, 10 to 1,000, in JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import torch
from torch import nn

from bench import ours, torch_step
from bench.measure import Contender, Effort
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
    yield grown("a step of PyTorch", "parameters", sizes, of_torch, effort, 31, 50)
