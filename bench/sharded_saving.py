"""Saving a state of 500 MB that two ranks share: how long each is blocked, and until it is durable.

Blocked is set against a copy of the rank's shard in memory, and is that of the slower rank. Each
engine has two processes of its own, which save the same way in turn.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import runhooks as rh
from bench.saving import COPY, PART_ITEMS, PARTS, Cost, Save, ratio, timed

RANKS = 2
ROWS = 1000


def torch_saves() -> dict[str, Save]:
    import torch.distributed.checkpoint
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    whole = torch.rand(ROWS, PART_ITEMS // ROWS)
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
    return {
        f"torch, {COPY} of the rank": lambda folder: timed(lambda: list(map(np.copy, local))),
        "torch, runhooks": lambda folder: timed(
            lambda: saver.save(session, folder / "model.ckpt", 0), saver.wait
        ),
        "torch, torch.distributed.checkpoint.async_save": dcp,
    }


def jax_saves() -> dict[str, Save]:
    import jax
    import orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec

    spec: Any = PartitionSpec
    sharding = NamedSharding(jax.make_mesh((RANKS,), ("x",)), spec("x"))
    whole = np.random.default_rng(0).random((ROWS, PART_ITEMS // ROWS), np.float32)
    arrays = {
        f"part_{i}": jax.make_array_from_callback(whole.shape, sharding, lambda at: whole[at])
        for i in range(PARTS)
    }
    with rh.Graph(engine="jax").as_default() as graph:
        rh.Variable(arrays, name="state")
    session, saver = rh.Session(graph), rh.Saver(asynchronous=True)
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    local = [np.asarray(array.addressable_shards[0].data) for array in arrays.values()]
    return {
        f"jax, {COPY} of the rank": lambda folder: timed(lambda: list(map(np.copy, local))),
        "jax, runhooks": lambda folder: timed(
            lambda: saver.save(session, folder / "model.ckpt", 0), saver.wait
        ),
        "jax, orbax AsyncCheckpointer": lambda folder: timed(
            lambda: checkpointer.save(folder / "orbax", args=ocp.args.StandardSave(arrays)),
            checkpointer.wait_until_finished,
        ),
    }


def start_torch(rank: int, port: int, folder: Path) -> None:
    import torch

    dist: Any = torch.distributed
    file = folder / "port"
    if rank == 0:  # its store does not share a port with the holder of one
        store = dist.TCPStore("127.0.0.1", 0, RANKS, True, wait_for_workers=False)
        file.with_suffix(".part").write_text(str(store.port))
        file.with_suffix(".part").rename(file)
    else:
        while not file.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(file.read_text()), RANKS, False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)


def start_jax(rank: int, port: int, folder: Path) -> None:
    import jax

    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", RANKS, rank)


ENGINES: dict[str, tuple[Callable[[int, int, Path], None], Callable[[], dict[str, Save]]]] = {
    "torch": (start_torch, torch_saves),
    "jax": (start_jax, jax_saves),
}


def be_rank(engine: str, rank: int, port: int, folder: Path, turns: int) -> None:
    """Save ``turns`` times in each way, together with the other rank; print what it cost."""
    from runhooks.ranks import current_group

    start, saves = ENGINES[engine]
    start(rank, port, folder)
    group, contenders = current_group(), saves()
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, save in contenders.items():
            place = folder / f"{turn}-{engine}"
            group.barrier("begins")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cost = save(place)
            group.barrier("ends")
            if rank == 0:
                shutil.rmtree(place, ignore_errors=True)
            if turn:  # the first finds memory that nobody had before
                costs[name].append(cost)
    print(json.dumps(costs), flush=True)
    if engine == "torch" and rank == 0:
        sys.stdin.read()  # it has the store: it leaves when the other has


@contextmanager
def reserved_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET6) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("::", 0))
        yield holder.getsockname()[1]


def measure(engine: str, turns: int) -> dict[str, list[Cost]]:
    """What the slower rank paid, by the way of saving."""
    with tempfile.TemporaryDirectory() as folder, reserved_port() as port:
        command = [sys.executable, "-m", "bench.sharded_saving", engine]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(port), folder, str(turns)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sys.stderr if "-v" in sys.argv else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(RANKS)
        ]
        outputs = [rank.communicate()[0] for rank in reversed(ranks)]
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {
        name: [
            Cost(*map(max, zip(*turn, strict=True)))
            for turn in zip(*[it[name] for it in found], strict=True)
        ]
        for name in found[0]
    }


def show(turns: int) -> None:
    print(
        f"\na state of 500 MB of {RANKS} ranks, saved in the background: medians of {turns} turns"
    )
    print(f"{'':50}{'blocked ms':>12}{'of a copy':>11}{'durable ms':>12}")
    for engine in ENGINES:
        costs = measure(engine, turns)
        (copy, *_) = costs.values()
        for name, of_it in costs.items():
            blocked = [cost.blocked for cost in of_it]
            times = ratio(blocked, [cost.blocked for cost in copy])
            durable = statistics.median(cost.durable for cost in of_it) * 1e3
            print(f"{name:50}{statistics.median(blocked) * 1e3:12.1f}{times:11.2f}{durable:12.1f}")


if __name__ == "__main__":
    be_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
