"""Saving a state of 500 MB: how long the loop is blocked, and how long until it is on the disk.

Blocked is set against a copy of the state in memory, durable against a plain write with fsync.
Both are as noisy as the memory and the disk of the machine: each figure is a median over turns,
each ratio the median of the ratios within a turn.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import torch.distributed.checkpoint

import runhooks as rh

PARTS, PART_ITEMS = 20, 6_250_000  # of 4 bytes: 500 MB
WRITE_ITEMS = 1 << 18

COPY, WRITE = "np.copy of the state", "write and fsync of the same bytes"


class Cost(NamedTuple):
    """Seconds from the beginning of a save: until the loop goes on, and until it is durable."""

    blocked: float
    durable: float


#: Saves into a folder that is not there yet.
Save = Callable[[Path], Cost]


def state() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {f"part_{i}": rng.random(PART_ITEMS, np.float32) for i in range(PARTS)}


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


def plain_copy() -> Save:
    arrays = state()
    return lambda folder: timed(lambda: [np.copy(array) for array in arrays.values()])


def plain_write() -> Save:
    arrays = state()

    def save(folder: Path) -> None:
        folder.mkdir()
        with (folder / "state").open("wb") as file:
            for array in arrays.values():
                for start in range(0, len(array), WRITE_ITEMS):  # faster than all at once
                    file.write(array[start : start + WRITE_ITEMS].data)
            os.fsync(file.fileno())

    return lambda folder: timed(lambda: save(folder))


def ours(engine: str, asynchronous: bool) -> Save:
    """The next steps come right after the save; on jax they take over the buffers of the state."""
    with rh.Graph(engine=engine).as_default() as graph:
        variable = rh.Variable(state(), name="state")
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


def torch_save() -> Save:
    tensors = {name: torch.from_numpy(array) for name, array in state().items()}

    def save(folder: Path) -> None:
        folder.mkdir()
        torch.save(tensors, folder / "state.pt")
        fsync(folder / "state.pt")

    return lambda folder: timed(lambda: save(folder))


def torch_distributed() -> Save:
    tensors = {name: torch.from_numpy(array) for name, array in state().items()}
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


def orbax() -> Save:
    arrays = {name: jnp.array(array) for name, array in state().items()}
    for array in arrays.values():
        array.block_until_ready()
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def save(folder: Path) -> Cost:
        return timed(
            lambda: checkpointer.save(folder, args=ocp.args.StandardSave(arrays)),
            checkpointer.wait_until_finished,
        )

    return save


def contenders() -> dict[str, Save]:
    return {
        COPY: plain_copy(),
        WRITE: plain_write(),
        "runhooks, asynchronous, python engine": ours("python", True),
        "runhooks, asynchronous, jax engine": ours("jax", True),
        "runhooks, synchronous, python engine": ours("python", False),
        "torch.save, then fsync": torch_save(),
        "torch.distributed.checkpoint.async_save": torch_distributed(),
        "orbax AsyncCheckpointer": orbax(),
    }


def measure(saves: Mapping[str, Save], turns: int) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in saves}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(turns + 1):
            for contender, save in saves.items():
                folder = Path(name) / "saved"
                os.sync()  # what others wrote is not to be waited for here
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    cost = save(folder)
                shutil.rmtree(folder, ignore_errors=True)
                if turn:  # the first compiles, and finds memory that nobody had before
                    costs[contender].append(cost)
    return costs


def table(costs: Mapping[str, list[Cost]]) -> str:
    lines = [f"{'':42}{'blocked ms':>12}{'of a copy':>11}{'durable ms':>12}{'of a write':>12}"]
    for name, of_it in costs.items():
        copied = [cost.blocked for cost in costs[COPY]]
        written = [cost.durable for cost in costs[WRITE]]
        blocked = [cost.blocked for cost in of_it]
        line = f"{name:42}{statistics.median(blocked) * 1e3:12.1f}{ratio(blocked, copied):11.2f}"
        if name != COPY:
            durable = [cost.durable for cost in of_it]
            line += f"{statistics.median(durable) * 1e3:12.1f}{ratio(durable, written):12.2f}"
        lines.append(line)
    return "\n".join(lines)


def ratio(mine: list[float], base: list[float]) -> float:
    return statistics.median(m / b for m, b in zip(mine, base, strict=True))


def show(turns: int) -> None:
    print(f"\na state of 500 MB, saved: medians of {turns} turns")
    print(table(measure(contenders(), turns)), flush=True)
