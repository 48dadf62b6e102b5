"""Reading a million scalars of 20 tags into columns, compared with TensorBoard and tbparse.

Each reader has its own process, so that memory left over by one does not slow the next, and its
peak can be measured. They take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from bench.measure import Contender, Effort, Role, alternate
from bench.table import Table, tabulated

POINTS, TAGS = 1_000_000, 20
WALK, COLUMNS = "a walk over the records, no more", "the columns themselves"

_WRITE = """
import sys
import numpy as np
from runhooks.summary import FileWriter
values = np.random.default_rng(0).normal(size=int(sys.argv[2])).tolist()
tags = [f"train/metric_{n}" for n in range(int(sys.argv[3]))]
with FileWriter(sys.argv[1]) as writer:
    for at, value in enumerate(values):
        writer.scalar(tags[at % len(tags)], value, at // len(tags))
"""

#: A program that prints seconds, megabytes and points. Imports are neither timed nor counted.
MEASURED = """
import json, re, sys, time
def peak():  # not ru_maxrss, which begins with that of the process this one was started from
    return int(re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1])
{imports}
before = peak()
begin = time.perf_counter()
{read}
secs = time.perf_counter() - begin
grown = peak() - before
print(json.dumps([secs, grown * 1024 / 1e6, points]))
"""

# TensorBoard imports it when the first file is read.
_TENSORFLOW = "from tensorboard.compat import tf; tf.__version__"

_READERS = {
    WALK: MEASURED.format(
        imports="import pathlib, struct\nlength_of = struct.Struct('<Q').unpack_from",
        read="(path,) = pathlib.Path(sys.argv[1]).iterdir()\n"
        "data, at, points = path.read_bytes(), 0, -1\n"
        "while at < len(data):\n    at += length_of(data, at)[0] + 16\n    points += 1",
    ),
    "runhooks read": MEASURED.format(
        imports="from runhooks import events\nevents.read",
        read="run = events.read(sys.argv[1]).only\n"
        "points = sum(len(run.scalars[tag].steps) for tag in run.scalars)",
    ),
    "runhooks check": MEASURED.format(
        imports="from runhooks import events\nevents.check",
        read="(report,) = events.check(sys.argv[1])\n"
        "assert report.sound\npoints = report.records - 1",
    ),
    "EventAccumulator": MEASURED.format(
        imports="from tensorboard.backend.event_processing import event_accumulator as ea\n"
        + _TENSORFLOW,
        read="run = ea.EventAccumulator(sys.argv[1], {'scalars': 0})\nrun.Reload()\n"
        "points = sum(len(run.Scalars(tag)) for tag in run.Tags()['scalars'])",
    ),
    "tbparse": MEASURED.format(
        imports="from tbparse import SummaryReader\n" + _TENSORFLOW,
        read="points = len(SummaryReader(sys.argv[1], extra_columns={'wall_time'}).scalars)",
    ),
}


def contenders() -> list[Contender]:
    """``loop(folder)`` reads what is there: seconds, megabytes, points."""
    made = []
    for name, program in _READERS.items():
        role: Role = "limit" if name == WALK else "ours" if "runhooks" in name else "peer"
        made.append(Contender(name, reading(program), role=role))
    return made


def reading(program: str) -> Callable[[str], list[float]]:
    def loop(folder: str) -> list[float]:
        found: list[float] = json.loads(_python(program, folder))
        return found

    return loop


def tables(effort: Effort) -> Iterator[Table]:
    points, turns = effort.amount(POINTS), effort.turns(5)
    columns = [points * 24 / 1e6] * turns  # a step, a value and a time of eight bytes each
    readers = contenders()
    with tempfile.TemporaryDirectory() as folder:
        _python(_WRITE, folder, str(points), str(TAGS))
        returned = alternate(readers, turns, folder)
    for name, of_it in returned.items():
        if any(it[2] != points for it in of_it):
            raise ValueError(f"{name} has read {of_it[0][2]} of {points} points")
    title = f"{points:,} scalars of {TAGS} tags, file to columns"
    secs = {name: [it[0] for it in of_it] for name, of_it in returned.items()}
    yield tabulated(title, "s", readers, secs)
    grown = {name: [it[1] for it in of_it] for name, of_it in returned.items() if name != WALK}
    grown[COLUMNS] = columns
    limit = Contender(COLUMNS, lambda _: None, role="limit")
    yield tabulated(f"{title}: growth of memory", "MB", [limit, *readers], grown)


def _python(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout
