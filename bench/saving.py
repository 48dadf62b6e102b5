"""Saving a state of 500 MB: how long the loop is blocked, and how long until it is on the disk.

Blocked is set against a copy of the state in memory, durable against a plain write with fsync.
Both are as noisy as the memory and the disk of the machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import torch.distributed.checkpoint
from safetensors import numpy as safetensors

import runhooks as rh
from bench.measure import Contender, Effort, alternate
from bench.table import Table, tabulated

PARTS, PART_ITEMS = 20, 6_250_000  # of 4 bytes: 500 MB
WRITE_ITEMS = 1 << 18

COPY, WRITE = "np.copy of the state", "write and fsync of the same bytes"
JAX = "runhooks, asynchronous, jax engine"
SYNCHRONOUS = "runhooks, synchronous, python engine"
ONE_FILE = (
    "It writes one file, which is damaged if the machine stops meanwhile. runhooks "
    "writes files with checksums to a folder, each with an fsync, and then gives the folder "
    "its name: a checkpoint is complete or absent."
)


class Cost(NamedTuple):
    """Seconds from the beginning of a save: until the loop goes on, and until it is durable."""

    blocked: float
    durable: float


State = dict[str, np.ndarray[Any, Any]]

#: Saves into a folder that is not there yet.
Save = Callable[[Path], Cost]


def state(items: int) -> State:
    rng = np.random.default_rng(0)
    return {f"part_{i}": rng.random(items, np.float32) for i in range(PARTS)}


def timed(blocking: Callable[[], object], waiting: Callable[[], object] | None = None) -> Cost:
    begin = time.perf_counter()
    blocking()
    blocked = time.perf_counter() - begin
    if waiting is not None:
        waiting()
    return Cost(blocked, time.perf_counter() - begin)


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def plain_copy(arrays: State) -> Save:
    return lambda folder: timed(lambda: [np.copy(array) for array in arrays.values()])


def plain_write(arrays: State) -> Save:
    def save(folder: Path) -> None:
        folder.mkdir()
        with (folder / "state").open("wb") as file:
            for array in arrays.values():
                for start in range(0, len(array), WRITE_ITEMS):  # faster than all at once
                    file.write(array[start : start + WRITE_ITEMS].data)
            os.fsync(file.fileno())

    return lambda folder: timed(lambda: save(folder))


def ours(arrays: State, engine: str, asynchronous: bool) -> Save:
    """The next steps come right after the save; on jax they take over the buffers of the state."""
    with rh.Graph(engine=engine).as_default() as graph:
        variable = rh.Variable(arrays, name="state")
        train_op = rh.group(variable.assign(rh.call(step, variable)))
    session, saver = rh.Session(graph), rh.Saver(asynchronous=asynchronous)

    def go_on() -> None:
        session.run(train_op)
        saver.wait()

    def save(folder: Path) -> Cost:
        session.run(train_op)
        session.wait()
        path = folder / "model.ckpt"
        return timed(lambda: saver.save(session, path), go_on if asynchronous else None)

    return save


def step(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value + 1 for name, value in values.items()}


def torch_save(arrays: State) -> Save:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}

    def save(folder: Path) -> None:
        folder.mkdir()
        torch.save(tensors, folder / "state.pt")
        fsync(folder / "state.pt")

    return lambda folder: timed(lambda: save(folder))


def safetensors_save(arrays: State) -> Save:
    def save(folder: Path) -> None:
        folder.mkdir()
        safetensors.save_file(arrays, folder / "state.safetensors")
        fsync(folder / "state.safetensors")

    return lambda folder: timed(lambda: save(folder))


def torch_distributed(arrays: State) -> Save:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    distributed: Any = torch.distributed
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    async_save: Any = distributed.checkpoint.async_save

    def save(folder: Path) -> Cost:
        futures: list[Any] = []
        return timed(
            lambda: futures.append(async_save(tensors, checkpoint_id=folder)),
            lambda: futures[0].result(),
        )

    return save


def orbax(arrays: State) -> Save:
    values = {name: jnp.array(array).block_until_ready() for name, array in arrays.items()}
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def save(folder: Path) -> Cost:
        return timed(
            lambda: checkpointer.save(folder, args=ocp.args.StandardSave(values)),
            checkpointer.wait_until_finished,
        )

    return save


def contenders(items: int) -> list[Contender]:
    """``loop(folder)`` saves a state of ``items`` in each array: a ``Save``."""
    arrays = state(items)
    return [
        Contender(COPY, plain_copy(arrays), role="limit"),
        Contender(WRITE, plain_write(arrays), role="limit"),
        Contender("runhooks, asynchronous, python engine", ours(arrays, "python", True)),
        Contender(JAX, ours(arrays, "jax", True)),
        Contender(SYNCHRONOUS, ours(arrays, "python", False)),
        Contender(
            "torch.save, then fsync",
            torch_save(arrays),
            role="peer",
            beside=SYNCHRONOUS,
            why=ONE_FILE,
        ),
        Contender(
            "safetensors.numpy.save_file, then fsync",
            safetensors_save(arrays),
            role="peer",
            beside=SYNCHRONOUS,
            why=ONE_FILE,
        ),
        Contender(
            "torch.distributed.checkpoint.async_save",
            torch_distributed(arrays),
            role="peer",
        ),
        Contender("orbax AsyncCheckpointer", orbax(arrays), role="peer", beside=JAX),
    ]


def quietly(save: Save, folder: Path) -> Cost:
    """Save, and remove it; what was written before is on the disk, and need not be waited for."""
    os.sync()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cost = save(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return cost


def two_tables(
    title: str, contenders: Sequence[Contender], costs: Mapping[str, Sequence[Cost]]
) -> Iterator[Table]:
    """Blocked is shown beside all but the plain write, durable beside all but the copy."""
    milliseconds: dict[str, dict[str, list[float]]] = {"blocked": {}, "durable": {}}
    for name, of_it in costs.items():
        if WRITE not in name:
            milliseconds["blocked"][name] = [cost.blocked * 1e3 for cost in of_it]
        if COPY not in name:
            milliseconds["durable"][name] = [cost.durable * 1e3 for cost in of_it]
    for what, rounds in milliseconds.items():
        yield tabulated(f"{title}: until {what}", "ms", contenders, rounds)


def tables(effort: Effort) -> Iterator[Table]:
    items, turns = effort.amount(PART_ITEMS), effort.turns(7)
    with tempfile.TemporaryDirectory() as name:
        saves = [
            contender._replace(loop=partial(quietly, contender.loop))
            for contender in contenders(items)
        ]
        folder = Path(name) / "saved"
        alternate(saves, 1, folder)  # compiles, and finds memory that nobody had before
        costs = alternate(saves, turns, folder)
    yield from two_tables(f"a state of {items * PARTS * 4 / 1e6:,.0f} MB", saves, costs)
