"""One run of a whole program, which tells when its steps were made, and can be killed after one.

``python -m bench.programs.run RUN`` makes one, given as the fields of ``Run`` in JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Run(NamedTuple):
    """A run to make.

    Args:
        module: The program's module.
        function: What in it trains, given a Namespace of ``options`` with ``dir``.
        gallery: The module in the gallery that has the program's data.
        options: What the command line of the gallery's would give.
        folder: Where it writes; rank R writes when its steps were made to ``times-R.json``.
        killed_at: The step after which it is killed; None: it ends.
        environment: Set before frameworks are imported.
    """

    module: str
    function: str
    gallery: str
    options: dict[str, Any]
    folder: str
    killed_at: int | None
    environment: dict[str, str]


class Steps:
    """Notes the time at each step, and kills the process after the one it is told."""

    def __init__(self, path: Path, killed_at: int | None) -> None:
        self._path, self._killed_at = path, killed_at
        self._times: list[float] = []

    def __call__(self, *_: object) -> None:
        self._times.append(time.monotonic())
        if len(self._times) == self._killed_at:
            self.write()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self) -> None:
        self._path.write_text(json.dumps(self._times))


def call_at_batches(source: Any, call: Callable[[], None]) -> None:
    """Call it as each batch of a class of batches is drawn: where a step of JAX ends, none sees."""
    iterate = source.__iter__

    def iterated(self: Any) -> Iterator[Any]:
        for batch in iterate(self):
            call()
            yield batch

    source.__iter__ = iterated


def train(run: Run) -> None:
    """Make a run in this process."""
    os.environ.update(run.environment)
    gc.freeze()  # what was imported before this process was forked
    rank = run.environment.get("RANK", "0")
    steps = Steps(Path(run.folder) / f"times-{rank}.json", run.killed_at)
    module, gallery = importlib.import_module(run.module), importlib.import_module(run.gallery)
    if hasattr(gallery, "Batches"):
        call_at_batches(gallery.Batches, steps)
    else:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        torch.set_num_threads(1)
        register_optimizer_step_post_hook(steps)
        if "RANK" in run.environment and module is gallery:  # as its command does
            torch.distributed.init_process_group("gloo")
    getattr(module, run.function)(Namespace(dir=Path(run.folder) / "run", **run.options))
    steps.write()


if __name__ == "__main__":
    train(Run(*json.loads(sys.argv[1])))
