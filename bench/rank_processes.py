"""Processes that are the ranks of one training, for topics that measure several together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.table import Table

RANKS = 2


def run_ranks(module: str, folder: str, *arguments: object) -> list[Table]:
    """Run ``python -m module rank folder arguments`` for each; return the tables of rank 0.

    The environment is as ``torchrun`` sets it, for the peers that look. What the ranks print of
    themselves goes to stderr.
    """
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(rank), folder, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(rank),
        )
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate()[0] for rank in reversed(ranks)]
    if failed := [rank.args for rank in ranks if rank.returncode]:
        raise RuntimeError(f"ranks have failed: {failed}")
    tables: list[Table] = json.loads(outputs[-1].splitlines()[-1])
    return tables


def finish(rank: int, tables: Iterable[Table], has_store: bool) -> None:
    """Print the tables of rank 0, which stays until the others have left if it has their store."""
    if rank == 0:
        print(json.dumps(list(tables)), flush=True)
        if has_store:
            sys.stdin.read()


def start_torch(rank: int, folder: Path, ranks: int = RANKS, backend: str = "gloo") -> None:
    import torch

    dist: Any = torch.distributed
    file = folder / "port"
    if rank == 0:  # its store does not share a port with the holder of one
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, wait_for_workers=False)
        file.with_suffix(".part").write_text(str(store.port))
        file.with_suffix(".part").rename(file)
    else:
        while not file.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(file.read_text()), ranks, False)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)


def _environment(rank: int) -> dict[str, str]:
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0, "OMP_NUM_THREADS": 1}
    return {**os.environ, **{name: str(value) for name, value in {**ranks, **where}.items()}}
