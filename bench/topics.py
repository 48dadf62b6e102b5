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


class Topic(TypedDict):
    """What was measured of a topic.

    ``seconds`` is how long it took, ``others`` which part of the processors' time went to other
    programs meanwhile. ``failed`` has the end of what a topic that raised has printed.
    """

    about: str
    seconds: float
    others: float | None
    tables: list[Table]
    growths: list[Growth]
    failed: NotRequired[str]


def about(topic: str) -> str:
    """Return what the module of a topic says that it is."""
    path = Path(__file__).with_name(f"{TOPICS[topic]}.py")
    return inspect.cleandoc(path.read_text().split('"""')[1])


def run(topic: str, quick: bool) -> Topic:
    """Measure a topic in a process of its own."""
    processors, begin = Processors(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, "-m", "bench.topics", topic, str(path), *["quick"] * quick]
        # What a contender writes in a folder of its own goes with the process.
        settings = {"TMPDIR": folder, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "torch"}
        process = subprocess.run(
            command,
            cwd=Path(__file__).parents[1],
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        found = json.loads(path.read_text()) if process.returncode == 0 else {}
    result = Topic(
        about=about(topic),
        seconds=time.perf_counter() - begin,
        others=processors.used_by_others(),
        tables=found.get("tables", []),
        growths=found.get("growths", []),
    )
    if process.returncode != 0:
        result["failed"] = process.stdout[-2000:]
    return result


def main(topic: str, path: str, *quick: str) -> None:
    """Measure a topic in this process, and write its tables to ``path``."""
    module = importlib.import_module(f"bench.{TOPICS[topic]}")
    found = list(module.tables(Effort(quick=bool(quick))))
    growths = [one for one in found if "sizes" in one]
    tables = [one for one in found if "sizes" not in one]
    Path(path).write_text(json.dumps({"tables": tables, "growths": growths}))


if __name__ == "__main__":
    main(*sys.argv[1:])
