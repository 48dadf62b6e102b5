"""Saving a state of many small arrays, 10 to 10,000 of 256 bytes, until it is on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench import saving
from bench.measure import Contender, Effort, alternate
from bench.table import Growth, Table, tabulated

SIZES, ITEMS, TURNS = (10, 100, 1_000, 10_000), 64, 3


def contenders(arrays: int) -> list[Contender]:
    state = {f"array_{number}": np.ones(ITEMS, np.float32) for number in range(arrays)}
    saves = [
        Contender("write and fsync of the same bytes", saving.plain_write(state), role="limit"),
        Contender("runhooks", saving.ours(state, "python", False)),
        Contender(
            "torch.save, then fsync", saving.torch_save(state), role="peer", why=saving.ONE_FILE
        ),
        Contender(
            "safetensors.numpy.save_file, then fsync",
            saving.safetensors_save(state),
            role="peer",
            why=saving.ONE_FILE,
        ),
        Contender("orbax AsyncCheckpointer", saving.orbax(state), role="peer"),
    ]
    return [save._replace(loop=partial(saving.quietly, save.loop)) for save in saves]


def table(arrays: int, turns: int) -> Table:
    saves = contenders(arrays)
    with tempfile.TemporaryDirectory() as folder:
        alternate(saves, 1, Path(folder) / "saved")
        costs = alternate(saves, turns, Path(folder) / "saved")
    rounds = {name: [cost.durable * 1e3 for cost in of_it] for name, of_it in costs.items()}
    return tabulated("a save", "ms", saves, rounds)


def tables(effort: Effort) -> Iterator[Growth]:
    sizes = effort.sizes(*SIZES)
    made = [table(size, effort.turns(TURNS)) for size in sizes]
    yield Growth(title="a save", axis="arrays", sizes=list(sizes), tables=made)
