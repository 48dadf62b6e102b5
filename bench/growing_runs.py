"""How the time to read grows with the tags of a run, 10 to 100,000, and with runs, 1 to 2,000.

Each tag has 10 points; each run has 5 tags of 20 points. Everything is read, to columns or lists.
"""

from __future__ import annotations

import gc
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tbparse import SummaryReader
from tensorboard.backend.event_processing import event_accumulator, event_multiplexer

from bench.measure import Contender, Effort, alternate
from bench.table import Growth, tabulated
from runhooks import events
from runhooks.summary import FileWriter

TAGS, RUNS = (10, 100, 1_000, 10_000, 100_000), (1, 10, 100, 500, 2_000)
MANY = 10_000  # points; more of them take long enough to be measured a few times only
POINTS = 10  # of a tag, where there are many tags
RUN_TAGS, RUN_POINTS = 5, 20  # of a run, where there are many runs

IN_BULK = (
    "runhooks decodes many records at once with NumPy, which pays off from a few hundred "
    "records on."
)

length_of = struct.Struct("<Q").unpack_from

Read = Callable[[str], int]  # reads what is in a folder, and returns how many points there were


def write(folder: Path, tags: int, points: int) -> None:
    names = [f"train/metric_{number}" for number in range(tags)]
    with FileWriter(folder) as writer:
        for step in range(points):
            for name in names:
                writer.scalar(name, 0.5, step)


def walk(folder: str) -> int:
    """No more than going from record to record; each file has one that is no point."""
    points = 0
    for path in Path(folder).rglob("events.out.tfevents.*"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            at += length_of(data, at)[0] + 16
            points += 1
        points -= 1
    return points


def ours(folder: str) -> int:
    runs = events.read(folder)
    return sum(len(run.scalars[tag].steps) for run in runs.values() for tag in run.scalars)


def accumulator(folder: str) -> int:
    run = event_accumulator.EventAccumulator(folder, {"scalars": 0})
    run.Reload()
    return sum(len(run.Scalars(tag)) for tag in run.Tags()["scalars"])


def multiplexer(folder: str) -> int:
    runs = event_multiplexer.EventMultiplexer(size_guidance={"scalars": 0})
    runs.AddRunsFromDirectory(folder)
    runs.Reload()
    found: dict[str, Any] = runs.Runs()
    return sum(len(runs.Scalars(run, tag)) for run in found for tag in found[run]["scalars"])


def tbparse(folder: str) -> int:
    return len(SummaryReader(folder, extra_columns={"wall_time", "dir_name"}).scalars)


def grown_reading(
    axis: str,
    sizes: tuple[int, ...],
    peer: Contender,
    fill: Callable[[Path, int], int],
    effort: Effort,
) -> Growth:
    """Fill a folder of each size, of which ``fill`` returns the points, and read it."""
    readers = [
        Contender("a walk over the records, no more", walk, role="limit"),
        Contender("runhooks", ours),
        peer,
        Contender("tbparse", tbparse, role="peer", why=IN_BULK),
    ]
    tables = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            points = fill(Path(folder), size)
            timed = [reader._replace(loop=timing(reader.loop, points)) for reader in readers]
            secs = alternate(timed, effort.turns(3 if points > MANY else 15), folder)
        tables.append(tabulated("reading", "s", readers, secs))
    return Growth(title="reading", axis=axis, sizes=list(sizes), tables=tables)


def timing(read: Read, points: int) -> Callable[[str], float]:
    def loop(folder: str) -> float:
        gc.collect()  # what was read before is not paid for now
        begin = time.perf_counter()
        found = read(folder)
        secs = time.perf_counter() - begin
        if found != points:
            raise ValueError(f"{read.__name__} has read {found} of {points} points")
        return secs

    return loop


def many_tags(folder: Path, tags: int) -> int:
    write(folder, tags, POINTS)
    return tags * POINTS


def many_runs(folder: Path, runs: int) -> int:
    for number in range(runs):
        write(folder / f"run_{number}", RUN_TAGS, RUN_POINTS)
    return runs * RUN_TAGS * RUN_POINTS


def tables(effort: Effort) -> Iterator[Growth]:
    peer = Contender("EventAccumulator", accumulator, role="peer", why=IN_BULK)
    yield grown_reading("tags", effort.sizes(*TAGS), peer, many_tags, effort)
    peer = Contender("EventMultiplexer", multiplexer, role="peer", why=IN_BULK)
    yield grown_reading("runs", effort.sizes(*RUNS), peer, many_runs, effort)
