"""Saving a state of 500 MB shared by two ranks: how long each is blocked, and until it is durable.

The blocked time is that of the slower rank, compared with a copy of its shard in memory. Each
engine has two processes of its own; its contenders take turns in them.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import runhooks as rh
from bench.measure import Contender, Effort, alternate
from bench.rank_processes import RANKS, finish, run_ranks, start_torch
from bench.saving import COPY, PART_ITEMS, PARTS, Cost, Save, timed, two_tables
from bench.table import Table

COPIED = (
    "With several processes, runhooks copies the shards of a rank, because the next step reuses "
    "their buffers. orbax keeps references to the arrays themselves."
)
ROWS = 1000
ROW_ITEMS = PART_ITEMS // ROWS


def torch_saves(items: int) -> list[Contender]:
    import torch.distributed.checkpoint
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    whole = torch.rand(ROWS, items)
    parameters = [
        nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]), requires_grad=False)
        for _ in range(PARTS)
    ]
    model = nn.ParameterList(parameters)
    session = rh.Session(rh.torch.graph(lambda: None, model=model))
    saver = rh.Saver(asynchronous=True)
    distributed: Any = torch.distributed
    async_save = distributed.checkpoint.async_save

    def dcp(folder: Path) -> Cost:
        futures: list[Any] = []
        return timed(
            lambda: futures.append(async_save(model.state_dict(), checkpoint_id=folder)),
            lambda: futures[0].result(),
        )

    local = [parameter.to_local().numpy() for parameter in parameters]  # type: ignore[attr-defined]
    return [
        copying(local),
        Contender("runhooks", saving(saver, session)),
        Contender("torch.distributed.checkpoint.async_save", dcp, role="peer"),
    ]


def copying(local: list[np.ndarray[Any, Any]]) -> Contender:
    def copy(_: Path) -> Cost:
        return timed(lambda: list(map(np.copy, local)))

    return Contender(f"{COPY} of the rank", copy, role="limit")


def saving(saver: rh.Saver, session: rh.Session) -> Save:
    return lambda folder: timed(lambda: saver.save(session, folder / "model.ckpt", 0), saver.wait)


def jax_saves(items: int) -> list[Contender]:
    import jax
    import orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec

    spec: Any = PartitionSpec
    sharding = NamedSharding(jax.make_mesh((RANKS,), ("x",)), spec("x"))
    whole = np.random.default_rng(0).random((ROWS, items), np.float32)
    arrays = {
        f"part_{i}": jax.make_array_from_callback(whole.shape, sharding, lambda at: whole[at])
        for i in range(PARTS)
    }
    with rh.Graph(engine="jax").as_default() as graph:
        rh.Variable(arrays, name="state")
    session, saver = rh.Session(graph), rh.Saver(asynchronous=True)
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    local = [np.asarray(array.addressable_shards[0].data) for array in arrays.values()]

    def orbax(folder: Path) -> Cost:
        return timed(
            lambda: checkpointer.save(folder / "orbax", args=ocp.args.StandardSave(arrays)),
            checkpointer.wait_until_finished,
        )

    return [
        copying(local),
        Contender("runhooks", saving(saver, session)),
        Contender("orbax AsyncCheckpointer", orbax, role="peer", why=COPIED),
    ]


def start_jax(rank: int, folder: Path) -> None:
    import jax

    port = (folder / "jax-port").read_text()
    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", RANKS, rank)


Saves = Callable[[int], list[Contender]]
ENGINES: dict[str, tuple[Callable[[int, Path], None], Saves]] = {
    "torch": (start_torch, torch_saves),
    "jax": (start_jax, jax_saves),
}


def be_rank(rank: int, folder: Path, engine: str, effort: Effort) -> None:
    """Save in each way, together with the other rank; the cost is that of the slower one."""
    from runhooks.ranks import current_group

    start, saves = ENGINES[engine]
    start(rank, folder)
    group, items = current_group(), effort.amount(ROW_ITEMS)

    def together(save: Save, place: Path) -> Cost:
        group.barrier("begins")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cost = save(place)
        group.barrier("ends")
        if rank == 0:
            shutil.rmtree(place, ignore_errors=True)
        return cost

    contenders = [save._replace(loop=partial(together, save.loop)) for save in saves(items)]
    alternate(contenders, 1, folder / engine)  # finds memory that nobody had before
    mine = alternate(contenders, effort.turns(7), folder / engine)
    (folder / f"{engine}-{rank}.json").write_text(json.dumps(mine))
    group.barrier("measured")
    found = [json.loads((folder / f"{engine}-{it}.json").read_text()) for it in range(RANKS)]
    slower = {
        name: [
            Cost(*map(max, zip(*turn, strict=True)))
            for turn in zip(*[it[name] for it in found], strict=True)
        ]
        for name in mine
    }
    title = f"a state of {items * ROWS * PARTS * 4 / 1e6:,.0f} MB of {RANKS} ranks of {engine}"
    finish(rank, two_tables(title, contenders, slower), has_store=engine == "torch")


@contextmanager
def reserved_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET6) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("::", 0))
        yield holder.getsockname()[1]


def tables(effort: Effort) -> Iterator[Table]:
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder, reserved_port() as port:
            (Path(folder) / "jax-port").write_text(str(port))
            yield from run_ranks("bench.sharded_saving", folder, engine, int(effort.quick))


if __name__ == "__main__":
    be_rank(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Effort(quick=sys.argv[4] == "1"))
