"""Reading a state of 500 MB: into NumPy arrays, and back into a session.

The files are in the system's page cache. One number in each page is read afterwards, so that
readers that only map the file pay for what they map; in a session, a function of the variable
reads it, as a step does.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import torch
import torch.distributed.checkpoint
from safetensors import numpy as safetensors

import runhooks as rh
from bench.measure import Contender, Effort, alternate
from bench.saving import PART_ITEMS, PARTS, State, state
from bench.table import Table, tabulated

PAGE_ITEMS = 1024  # of four bytes
LOAD, JAX = "rh.load", "Saver.restore, jax engine"
SUMS = "Nearly all of it is the checksums, which google-crc32c computes in one thread."
#: The most times what ``np.fromfile`` takes.
MOST = {LOAD: 0.7}

UNCHECKED = "It does not verify the bytes; runhooks verifies their checksums."
MAPPED = (
    f"{UNCHECKED} Its tensors are the mapped file, which must not change while they are in use."
)

Read = Callable[[], Mapping[str, Any]]


def saved(session: rh.Session, folder: Path) -> Path:
    rh.Saver().save(session, folder / "model.ckpt", 1)
    return folder / "model.ckpt-1"


def session_of(engine: str, arrays: State) -> rh.Session:
    with rh.Graph(engine=engine).as_default() as graph:
        variable = rh.Variable(arrays, name="state")
        rh.train.get_or_create_global_step()
        rh.call(touched, variable, name="touched")
    return rh.Session(graph)


def touched(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[::PAGE_ITEMS].sum(keepdims=True) for name, value in values.items()}


def plain(arrays: State, folder: Path) -> Read:
    path = folder / "plain"
    with path.open("wb") as file:
        for array in arrays.values():
            file.write(array.data)
    items = len(next(iter(arrays.values())))

    def read() -> dict[str, Any]:
        with path.open("rb") as file:
            return {name: np.fromfile(file, np.float32, items) for name in arrays}

    return read


def safetensors_file(arrays: State, folder: Path) -> Read:
    path = folder / "state.safetensors"
    safetensors.save_file(arrays, path)
    return partial(safetensors.load_file, path)


def torch_file(arrays: State, folder: Path, mmap: bool) -> Read:
    path = folder / f"mmap-{mmap}.pt"
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    return partial(torch.load, path, mmap=mmap, weights_only=True)


def orbax(arrays: State, folder: Path) -> Read:
    checkpointer = ocp.StandardCheckpointer()
    values = {name: jnp.asarray(array) for name, array in arrays.items()}
    checkpointer.save(folder / "orbax", values)
    checkpointer.wait_until_finished()
    form = jax.tree.map(ocp.utils.to_shape_dtype_struct, values)

    def read() -> dict[str, Any]:
        found: dict[str, Any] = checkpointer.restore(folder / "orbax", form)
        return found

    return read


def torch_distributed(arrays: State, folder: Path) -> Read:
    dcp: Any = torch.distributed.checkpoint
    dcp.save(
        {name: torch.from_numpy(array) for name, array in arrays.items()},
        checkpoint_id=folder / "dcp",
    )

    def read() -> dict[str, Any]:
        tensors = {name: torch.empty(len(array)) for name, array in arrays.items()}
        dcp.load(tensors, checkpoint_id=folder / "dcp")
        return tensors

    return read


def restoring(session: rh.Session, path: Path) -> Read:
    saver = rh.Saver()

    def read() -> dict[str, Any]:
        saver.restore(session, path)
        found: dict[str, Any] = session.run("touched:0")
        return found

    return read


def contenders(items: int, folder: Path) -> list[Contender]:
    """``loop(None)`` reads all, and returns the milliseconds."""
    arrays = state(items)
    on_numpy, on_jax = session_of("python", arrays), session_of("jax", arrays)
    path = saved(on_numpy, folder)
    ours: dict[str, Read] = {
        LOAD: partial(rh.load, path, "state"),
        "Saver.restore, python engine": restoring(on_numpy, path),
        JAX: restoring(on_jax, path),
    }
    peers: list[tuple[str, Read, str]] = [
        ("safetensors.numpy.load_file", safetensors_file(arrays, folder), UNCHECKED),
        ("torch.load", torch_file(arrays, folder, False), UNCHECKED),
        ("torch.load(mmap=True)", torch_file(arrays, folder, True), MAPPED),
        ("torch.distributed.checkpoint.load", torch_distributed(arrays, folder), ""),
    ]
    limit = timing(plain(arrays, folder))
    return [
        Contender("np.fromfile of the same bytes", limit, role="limit"),
        *(
            Contender(name, timing(read), most=MOST.get(name), why=SUMS)
            for name, read in ours.items()
        ),
        *(Contender(name, timing(read), role="peer", why=why) for name, read, why in peers),
        Contender(
            "orbax StandardCheckpointer", timing(orbax(arrays, folder)), role="peer", beside=JAX
        ),
    ]


def timing(read: Read) -> Callable[[object], float]:
    def loop(_: object) -> float:
        gc.collect()
        begin = time.perf_counter()
        for array in read().values():
            float(np.asarray(array)[::PAGE_ITEMS].sum())
        return (time.perf_counter() - begin) * 1e3

    return loop


def tables(effort: Effort) -> Iterator[Table]:
    items = effort.amount(PART_ITEMS)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        readers = contenders(items, Path(name))
        os.sync()
        alternate(readers, 1)
        milliseconds = alternate(readers, effort.turns(7))
    title = f"a state of {items * PARTS * 4 / 1e6:,.0f} MB, read"
    yield tabulated(title, "ms", readers, milliseconds)
