"""Saving a state of 500 MB: how long the loop is blocked, and how long until it is on disk.

The blocked time is compared with a copy of the state in memory, the durable time with a plain write
and fsync. Both are as noisy as the machine's memory and disk.
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
from typing import Any, NamedTuple, TypeVar

import jax
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
    "It writes one file, which is damaged if the machine stops meanwhile. runhooks writes a file "
    "with checksums under another name, with an fsync, renames it, and syncs its directory: a "
    "checkpoint is complete or absent."
)


COPIES_LATER = (
    "It copies the state while the program goes on, and the next step waits if it takes over the "
    "buffers: see what a save adds to that step. runhooks copies first, once, on every engine."
)


class Cost(NamedTuple):
    """Seconds from the beginning of a save: until the loop goes on, and until it is durable."""

    blocked: float
    durable: float


State = dict[str, np.ndarray[Any, Any]]

Result = TypeVar("Result")

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


def training(arrays: State, engine: str) -> tuple[rh.Session, rh.Operation]:
    with rh.Graph(engine=engine).as_default() as graph:
        variable = rh.Variable(arrays, name="state")
        return rh.Session(graph), rh.group(variable.assign(rh.call(step, variable)))


def ours(arrays: State, engine: str, asynchronous: bool) -> Save:
    """The next steps come right after the save; on jax they take over the buffers of the state."""
    (session, train_op), saver = training(arrays, engine), rh.Saver(asynchronous=asynchronous)

    def go_on() -> None:
        session.run(train_op)
        saver.wait()

    def save(folder: Path) -> Cost:
        session.run(train_op)
        session.wait()
        path = folder / "model.ckpt"
        return timed(lambda: saver.save(session, path), go_on if asynchronous else None)

    return save


def stalled(
    make_step: Callable[[], object],
    save: Callable[[Path], object],
    wait: Callable[[], object],
) -> Callable[[Path], float]:
    """What a save adds to the step that follows it; milliseconds.

    ``make_step`` returns when the device has made it, ``wait`` when the save is on the disk.
    """

    def added(folder: Path) -> float:
        make_step()
        alone = timed(make_step).blocked
        with_save = timed(lambda: save(folder), make_step).durable
        wait()
        return (with_save - alone) * 1e3

    return added


def beside_steps(arrays: State, engine: str) -> Callable[[Path], float]:
    (session, train_op), saver = training(arrays, engine), rh.Saver(asynchronous=True)

    def make_step() -> None:
        session.run(train_op)
        session.wait()

    return stalled(make_step, lambda at: saver.save(session, at / "model.ckpt"), saver.wait)


def orbax_beside_steps(arrays: State) -> Callable[[Path], float]:
    make = jax.jit(step, donate_argnums=0)
    held = [make({name: jnp.array(array) for name, array in arrays.items()})]
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def make_step() -> None:
        held[0] = {name: it.block_until_ready() for name, it in make(held[0]).items()}

    def save(folder: Path) -> None:
        checkpointer.save(folder, args=ocp.args.StandardSave(held[0]))

    return stalled(make_step, save, checkpointer.wait_until_finished)


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
    async_save = torch_async_save()

    def save(folder: Path) -> Cost:
        futures: list[Any] = []
        return timed(
            lambda: futures.append(async_save(tensors, checkpoint_id=folder)),
            lambda: futures[0].result(),
        )

    return save


def torch_async_save() -> Any:
    """Return torch's, which wants a process group: this process becomes the only rank of one."""
    distributed: Any = torch.distributed
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return distributed.checkpoint.async_save


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
        Contender(
            "orbax AsyncCheckpointer", orbax(arrays), role="peer", beside=JAX, why=COPIES_LATER
        ),
    ]


def contenders_beside_steps(items: int) -> list[Contender]:
    """``loop(folder)`` returns what a save adds to a step that takes the state's buffers over."""
    arrays = state(items)
    copy = plain_copy(arrays)
    return [
        Contender(COPY, lambda folder: copy(folder).blocked * 1e3, role="limit"),
        Contender(JAX, beside_steps(arrays, "jax")),
        Contender("orbax AsyncCheckpointer", orbax_beside_steps(arrays), role="peer"),
    ]


def quietly(save: Callable[[Path], Result], folder: Path) -> Result:
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
    title = f"a state of {items * PARTS * 4 / 1e6:,.0f} MB"
    saves, costs = in_turns(contenders(items), turns)
    yield from two_tables(title, saves, costs)
    saves, milliseconds = in_turns(contenders_beside_steps(items), turns)
    yield tabulated(
        f"{title}: a save and the step after it, less a step", "ms", saves, milliseconds
    )


def in_turns(
    contenders: Sequence[Contender], turns: int
) -> tuple[list[Contender], dict[str, list[Any]]]:
    saves = [it._replace(loop=partial(quietly, it.loop)) for it in contenders]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "saved"
        for _ in range(2):  # compiles, and finds memory that nobody had before
            alternate(saves, 1, folder)
        return saves, alternate(saves, turns, folder)
