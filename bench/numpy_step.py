"""A trivial NumPy step: called bare, in sessions, and with growing numbers of hooks and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.measure import Contender, Effort
from bench.sessions import (
    State,
    Work,
    bare,
    five_hooks,
    loggers,
    monitored_session,
    no_hooks,
    raw_session,
)
from bench.table import Growth, Table, grown, measured

BARE, FIVE = "function call, bare", "monitored session, five hooks, none due"


CHECKED = (
    "Each array that the step returns is checked and copied, as its function may keep and change "
    "it, and the copy made read-only. A session takes the rest."
)


def initial(leaves: int) -> State:
    return {f"leaf_{number}": np.zeros(8) for number in range(leaves)}


def step(state: State) -> State:
    return {name: value + 1 for name, value in state.items()}


def of_leaves(leaves: int) -> list[Contender]:
    work = Work("python", partial(initial, leaves), step)
    return [
        Contender(BARE, bare(step, initial(leaves)), role="limit"),
        Contender(FIVE, monitored_session(work, five_hooks), BARE, 1.5, why=CHECKED),
    ]


def of_hooks(count: int) -> list[Contender]:
    work = Work("python", partial(initial, 2), step)
    return [
        Contender(BARE, bare(step, initial(2)), role="limit"),
        Contender("monitored session", monitored_session(work, loggers(count)), BARE),
    ]


def tables(effort: Effort) -> Iterator[Table | Growth]:
    work = Work("python", partial(initial, 2), step)
    contenders = of_leaves(2)
    contenders[1:1] = [
        Contender("raw session", raw_session(work), BARE),
        Contender("monitored session, no hooks", monitored_session(work, no_hooks), BARE),
    ]
    yield measured("a trivial step of NumPy", contenders, effort, 51, 300)
    sizes = effort.sizes(10, 30, 100, 300, 1000)
    yield grown("a step of NumPy", "arrays of state", sizes, of_leaves, effort, 31, 20)
    sizes = effort.sizes(1, 10, 100, 1000)
    yield grown("a step of NumPy", "sleeping hooks", sizes, of_hooks, effort, 31, 300)
