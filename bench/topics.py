"""The topics, each measured in a process of its own.

What one imports, and how many threads it takes, then disturbs no other. A topic is a module with
a function ``tables(effort)`` that yields tables and growths.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NotRequired, TypedDict

from bench.machine import Processors
from bench.measure import Effort
from bench.table import Growth, Table

#: The module of each topic, in the order in which they are measured.
TOPICS = {
    "step": "ours",
    "numpy": "numpy_step",
    "torch": "torch_step",
    "tensorflow": "tensorflow_step",
    "bridges": "bridges",
    "ranks": "ranks",
    "ranks-scale": "ranks_scale",
    "ranks-checkpoints": "ranks_checkpoints",
    "leaves": "leaves",
    "hooks": "hooks",
    "start": "start",
    "sweep": "sweep",
    "epoch-means": "epoch_means",
    "gallery": "gallery",
    "programs": "whole_programs",
    "writers": "writers",
    "summary-writer": "summary_writers",
    "readers": "readers",
    "growing-runs": "growing_runs",
    "growing-commands": "growing_commands",
    "imports": "imports",
    "saving": "saving",
    "saving-memory": "saving_memory",
    "small-arrays": "small_arrays",
    "frequent-saving": "frequent_saving",
    "loading": "loading",
    "sharded-saving": "sharded_saving",
    "stores": "stores",
}

#: Those that ``--gpu`` measures instead. The last may hang if a machine is not set up well.
GPU_TOPICS = {
    "gpu-step": "gpu_steps",
    "gpu-digits": "gpu_digits",
    "gpu-saving": "gpu_saving",
    "gpu-memory": "gpu_memory",
    "gpu-ranks": "gpu_ranks",
}

MODULES = TOPICS | GPU_TOPICS


class Topic(TypedDict):
    """What was measured of a topic.

    ``seconds`` is how long it took, ``others`` which part of the processors' time went to other
    programs meanwhile. ``failed`` has the last line of what a topic that raised has printed: the
    rest, which names folders of the machine, goes to stderr. ``again`` says when, and of which
    commit, it was measured after the others.
    """

    about: str
    seconds: float
    others: float | None
    tables: list[Table]
    growths: list[Growth]
    failed: NotRequired[str]
    again: NotRequired[str]


def about(topic: str) -> str:
    """Return what the module of a topic says that it is."""
    path = Path(__file__).with_name(f"{MODULES[topic]}.py")
    return inspect.cleandoc(path.read_text().split('"""')[1])


def run(topic: str, quick: bool, most_secs: float | None = None) -> Topic:
    """Measure a topic in a process of its own, which fails if it takes longer than ``most_secs``.

    What it has measured before it fails is kept.
    """
    processors, begin = Processors(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path, printed = Path(folder) / "result.json", Path(folder) / "printed"
        command = [sys.executable, "-m", "bench.topics", topic, str(path), *["quick"] * quick]
        settings = {
            "TMPDIR": folder,  # what a contender writes in a folder of its own goes with it
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "KERAS_BACKEND": "torch",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4",  # of a GPU that PyTorch is to use as well
        }
        failed = True
        with printed.open("w") as file:  # not a pipe, which what a topic started may keep open
            try:
                failed = (
                    subprocess.call(
                        command,
                        cwd=Path(__file__).parents[1],
                        env=os.environ | settings,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        timeout=most_secs,
                    )
                    != 0
                )
            except subprocess.TimeoutExpired:
                print(f"\nended: it had {most_secs:.0f} s", file=file)
        found = json.loads(path.read_text()) if path.exists() else []
        said = printed.read_text(errors="replace")
    result = Topic(
        about=about(topic),
        seconds=time.perf_counter() - begin,
        others=processors.used_by_others(),
        tables=[one for one in found if "sizes" not in one],
        growths=[one for one in found if "sizes" in one],
    )
    if failed:
        print(said[-2000:], file=sys.stderr)
        result["failed"] = said.rstrip().rpartition("\n")[2] + "\n"
    return result


def main(topic: str, path: str, *quick: str) -> None:
    """Measure a topic in this process, and write its tables to ``path``, after each anew."""
    module, found, part = (
        importlib.import_module(f"bench.{MODULES[topic]}"),
        [],
        Path(f"{path}.part"),
    )
    for one in module.tables(Effort(quick=bool(quick))):
        found.append(one)
        part.write_text(json.dumps(found))
        part.rename(path)  # it may be ended at any time


if __name__ == "__main__":
    main(*sys.argv[1:])
