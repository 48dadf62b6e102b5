"""A million scalars of 20 tags, from the file to columns, beside TensorBoard's reader and tbparse.

Each reads in a process of its own, so that what one leaves in memory does not slow the next down
and its peak can be told. The turns alternate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile

POINTS, TAGS = 1_000_000, 20
COLUMNS_MB = POINTS * 24 / 1e6  # a step, a value and a time of eight bytes each

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

# Imports are neither timed nor counted.
_READ = """
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
    "runhooks read": _READ.format(
        imports="from runhooks import events",
        read="run = events.read(sys.argv[1]).only\n"
        "points = sum(len(run.scalars[tag].steps) for tag in run.scalars)",
    ),
    "runhooks check": _READ.format(
        imports="from runhooks import events",
        read="(report,) = events.check(sys.argv[1])\n"
        "assert report.sound\npoints = report.records - 1",
    ),
    "EventAccumulator": _READ.format(
        imports="from tensorboard.backend.event_processing import event_accumulator as ea\n"
        + _TENSORFLOW,
        read="run = ea.EventAccumulator(sys.argv[1], {'scalars': 0})\nrun.Reload()\n"
        "points = sum(len(run.Scalars(tag)) for tag in run.Tags()['scalars'])",
    ),
    "tbparse": _READ.format(
        imports="from tbparse import SummaryReader\n" + _TENSORFLOW,
        read="points = len(SummaryReader(sys.argv[1], extra_columns={'wall_time'}).scalars)",
    ),
}


def show(turns: int) -> None:
    """Print how long each takes, in seconds, and by how much its memory grows."""
    with tempfile.TemporaryDirectory() as folder:
        _python(_WRITE, folder, str(POINTS), str(TAGS))
        results: dict[str, list[list[float]]] = {name: [] for name in _READERS}
        for _ in range(turns):
            for name, program in _READERS.items():
                results[name].append(json.loads(_python(program, folder)))
    print(f"\n{POINTS:,} scalars of {TAGS} tags, file to columns: medians of {turns} turns")
    print(f"{'':30}{'s':>8}{'ratio':>8}{'points':>12}{'MB':>8}{'/ columns':>11}")
    ours = statistics.median(secs for secs, _, _ in results["runhooks read"])
    for name, turns_of in results.items():
        secs, megabytes, points = (
            statistics.median(column) for column in zip(*turns_of, strict=True)
        )
        share = megabytes / COLUMNS_MB
        print(f"{name:30}{secs:8.2f}{secs / ours:8.1f}{points:12,.0f}{megabytes:8.0f}{share:11.1f}")


def _python(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout
