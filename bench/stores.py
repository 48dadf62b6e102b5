"""Saving and restoring 500 MB in S3, compared with fsspec's plain put and get of the same bytes.

The server is moto, on the same machine, so this compares the cost of clients and formats, not of a
network.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import fsspec
import numpy as np

import runhooks as rh
from bench.measure import Contender, Effort, alternate
from bench.table import Table, tabulated

PARTS, PART_ITEMS = 20, 6_250_000  # of 4 bytes: 500 MB

RANGES = (
    "moto reads the whole object for each range that it is asked for, 0.3 s here. runhooks asks "
    "for 8 MB at a time, to verify and place them while the next are on their way."
)

Act = Callable[[], object]


@contextmanager
def s3_server() -> Iterator[None]:
    """Run an S3 server with one bucket, which clients find in the environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secret",
        AWS_DEFAULT_REGION="us-east-1",
    )
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            make_bucket(f"{endpoint}/bench")
            yield
        finally:
            server.kill()


def make_bucket(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60).close()
        except OSError:  # it has not started yet
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(url)


def session_of(arrays: Any) -> rh.Session:
    with rh.Graph().as_default() as graph:
        rh.Variable(arrays, name="state")
    return rh.Session(graph)


def timed(act: Act, undo: Act, _: Any) -> float:
    begin = time.perf_counter()
    act()
    taken = time.perf_counter() - begin
    undo()
    return taken * 1e3


def nothing() -> None:
    pass


def tables_of(url: str, items: int, turns: int) -> Iterator[Table]:
    rng = np.random.default_rng(0)
    arrays = {f"part_{i}": rng.random(items, np.float32) for i in range(PARTS)}
    content = b"".join(it.tobytes() for it in arrays.values())
    fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    session, fresh = session_of(arrays), session_of(arrays)
    path = rh.Saver().save(session, f"{url}/kept/model.ckpt", 1)
    plain = f"{root}/plain"

    def save() -> None:
        rh.Saver().save(session, f"{url}/saved/model.ckpt", 1)

    def remove() -> None:
        fs.rm(f"{root}/saved", recursive=True)

    def contender(name: str, role: Any, act: Act, undo: Act = nothing, why: str = "") -> Contender:
        return Contender(name, partial(timed, act, undo), role=role, why=why)

    saving = [
        contender("fsspec, pipe_file", "peer", partial(fs.pipe_file, plain, content)),
        contender("runhooks, Saver.save", "ours", save, remove),
    ]
    restoring = [
        contender("fsspec, cat_file", "peer", partial(fs.cat_file, plain), why=RANGES),
        contender("runhooks, Saver.restore", "ours", partial(rh.Saver().restore, fresh, path)),
    ]
    size = f"{items * PARTS * 4 / 1e6:,.0f} MB"
    for what, contenders in (("saving", saving), ("restoring", restoring)):
        alternate(contenders, 1)
        yield tabulated(f"{what} {size} in S3", "ms", contenders, alternate(contenders, turns))


def tables(effort: Effort) -> Iterator[Table]:
    items, turns = effort.amount(PART_ITEMS), effort.turns(5)
    with s3_server():
        yield from tables_of("s3://bench", items, turns)
