"""Saving a state of many small arrays, 10 to 10,000 of 256 bytes, until it is on disk.

The goals are multiples of what safetensors takes to leave a file that is complete or absent.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import numpy as safetensors

import runhooks as rh
from bench import saving
from bench.measure import Contender, Effort, alternate
from bench.table import Growth, Table, tabulated

SIZES, ITEMS, TURNS = (10, 100, 1_000, 10_000), 64, 9
#: The most times what safetensors takes, by the number of arrays.
GOALS = {10: 2.0, 100: 1.5, 1_000: 1.0, 10_000: 0.9}

DURABLE = "safetensors.numpy.save_file, fsync, rename, fsync of the directory"


def ours(arrays: saving.State) -> saving.Save:
    """Each save is of another step, as in a training."""
    (session, _), saver = saving.training(arrays, "python"), rh.Saver(max_to_keep=None)
    steps = itertools.count()

    def save(folder: Path) -> saving.Cost:
        path, number = folder / "model.ckpt", next(steps)
        return saving.timed(lambda: saver.save(session, path, number))

    return save


TWO_FOLDERS = (
    "A checkpoint is a directory: it and that above it are synced, too, and the file has checksums "
    "of its pieces."
)


def safetensors_durable(arrays: saving.State) -> saving.Save:
    def save(folder: Path) -> None:
        folder.mkdir()
        written = folder / "temporary"
        safetensors.save_file(arrays, written)
        saving.fsync(written)
        written.replace(folder / "state.safetensors")
        saving.fsync(folder)

    return lambda folder: saving.timed(lambda: save(folder))


def contenders(arrays: int) -> list[Contender]:
    state = {f"array_{number}": np.ones(ITEMS, np.float32) for number in range(arrays)}
    saves = [
        Contender("write and fsync of the same bytes", saving.plain_write(state), role="limit"),
        Contender(DURABLE, safetensors_durable(state), role="peer", why=TWO_FOLDERS),
        Contender("runhooks", ours(state), DURABLE, most=GOALS.get(arrays)),
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
