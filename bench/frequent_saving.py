"""Saving every 10 steps: what of a loop's time it takes, and how long it holds the interpreter.

A step takes 10 ms, a checkpoint has 1 MB, and each is on disk before the next step; five are kept.
A save may take 5 % of the time of the steps between two: 5 ms.

Beside saving and reading 500 MB, and encoding an image, a thread does as little as Python can; its
longest pause is how long the interpreter was held.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import runhooks as rh
from bench import loading, saving
from bench.measure import Contender, Effort, alternate
from bench.table import Table, tabulated

STEPS, STEP_MS, PARTS, SHARE = 10, 10, 20, 0.05
ITEMS = 1_000_000 // 4 // PARTS
IMAGE = (1024, 1024, 3)

Act = Callable[[], object]


def disk(arrays: saving.State, folder: Path) -> Act:
    """A file for each turn, of which five are kept."""
    numbers = itertools.count()

    def save() -> None:
        number = next(numbers)
        with (folder / str(number)).open("wb") as file:
            for array in arrays.values():
                file.write(array.data)
            os.fsync(file.fileno())
        (folder / str(number - 5)).unlink(missing_ok=True)

    return save


def hooked(arrays: saving.State, hooks: list[rh.SessionRunHook], open_: ExitStack) -> Act:
    """``STEPS`` runs of a monitored session, which does nothing but count them."""
    with rh.Graph().as_default() as graph:
        rh.Variable(arrays, name="state")
        step = rh.train.get_or_create_global_step().assign_add(1, name="train_op")
    with graph.as_default():
        session = open_.enter_context(rh.MonitoredSession(hooks=hooks))

    def run() -> None:
        for _ in range(STEPS):
            session.run(step)

    return run


def milliseconds(act: Act) -> Callable[[object], float]:
    return lambda _: saving.timed(act).blocked * 1e3


def saves(effort: Effort, folder: Path) -> Table:
    arrays = {f"part_{number}": np.ones(ITEMS, np.float32) for number in range(PARTS)}
    (folder / "disk").mkdir()
    saver = rh.CheckpointSaverHook(folder / "run", save_steps=STEPS)
    bare, limit = "ten runs", "write and fsync of the same bytes"
    with ExitStack() as open_:
        contenders = [
            Contender(bare, milliseconds(hooked(arrays, [], open_)), role="limit"),
            Contender(limit, milliseconds(disk(arrays, folder / "disk")), role="limit"),
            Contender(
                "ten runs with CheckpointSaverHook(save_steps=10)",
                milliseconds(hooked(arrays, [saver], open_)),
                bare,
                budget=STEPS * STEP_MS * SHARE,
            ),
        ]
        alternate(contenders, 2)
        costs = alternate(contenders, effort.turns(100))
    return tabulated("a checkpoint of 1 MB every 10 steps", "ms", contenders, costs)


def stall(act: Act) -> Callable[[object], float]:
    """The longest pause, in milliseconds, of a thread that reads the clock while ``act`` runs."""

    def measured(_: object) -> float:
        worst, done, begun = [0.0], threading.Event(), threading.Event()

        def watch() -> None:
            last = time.perf_counter()
            begun.set()
            while not done.is_set():
                now = time.perf_counter()
                worst[0], last = max(worst[0], now - last), now

        thread = threading.Thread(target=watch)
        thread.start()
        begun.wait()
        act()
        done.set()
        thread.join()
        return worst[0] * 1e3

    return measured


def python() -> None:
    """A second of a loop, between whose turns the interpreter can be handed over at any time."""
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        pass


def stalls(effort: Effort, folder: Path) -> Table:
    arrays = saving.state(effort.amount(saving.PART_ITEMS))
    session, saver = loading.session_of("python", arrays), rh.Saver(max_to_keep=1)
    path, numbers = loading.saved(session, folder), itertools.count(2)
    image = np.random.default_rng(0).integers(0, 255, (1, *IMAGE), np.uint8)
    writer = rh.summary.FileWriter(folder / "events")

    def encode() -> None:
        writer.image("noise", image, 0)
        writer.flush()

    contenders = [
        Contender("a loop of Python", stall(python), role="limit"),
        Contender("Saver.save", stall(lambda: saver.save(session, folder / "all", next(numbers)))),
        Contender("Saver.restore", stall(lambda: saver.restore(session, path))),
        Contender("rh.load", stall(lambda: rh.load(path, "state"))),
        Contender("an image of 1024 by 1024 pixels", stall(encode)),
    ]
    alternate(contenders, 1)
    costs = alternate(contenders, effort.turns(7))
    writer.close()
    return tabulated("the longest pause of another thread", "ms", contenders, costs)


def tables(effort: Effort) -> Iterator[Table]:
    for measure in (saves, stalls):
        with tempfile.TemporaryDirectory() as folder:
            yield measure(effort, Path(folder))
