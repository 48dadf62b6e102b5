"""A whole program that is run until it is killed, and started again, and what both take."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.programs.run import Run, train


class Runs:
    """Runs of a program: each is killed, and later started again.

    Args:
        module, function, gallery, options: As for ``Run``.
        ranks: On how many it runs.
        timed: The steps from whose first to whose last it is timed.
        killed_at: The step after which it is killed.
        steps: How many steps it makes.
    """

    def __init__(
        self,
        module: str,
        function: str,
        gallery: str,
        options: dict[str, Any],
        *,
        ranks: int,
        timed: tuple[int, int],
        killed_at: int,
        steps: int,
    ) -> None:
        self._program = module, function, gallery, options
        self._ranks, self._timed = ranks, timed
        self._killed_at, self._steps = killed_at, steps
        self._folders = deque[str]()  # of those that were not started again

    def killed(self, _: object = None) -> float:
        """Run it until it is killed; return its seconds for 1,000 steps.

        Its processes are forked from one that has imported all it needs.
        """
        folder, server = tempfile.mkdtemp(), multiprocessing.get_context("forkserver")
        with environments(self._ranks) as each:
            ranks = [
                server.Process(
                    target=train, args=(Run(*self._program, folder, self._killed_at, it),)
                )
                for it in each
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
        if any(rank.exitcode != -signal.SIGKILL for rank in ranks):
            raise RuntimeError(f"{self._program[0]} has not come to the step to be killed at")
        self._folders.append(folder)
        return per_1000(times_in(folder), *self._timed)

    def restarted(self, _: object = None) -> float:
        """Start one again that was killed; return the seconds until it is where it was."""
        folder = self._folders.popleft()
        begun = time.monotonic()
        with environments(self._ranks) as each:
            ranks = [
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "bench.programs.run"),
                        json.dumps(Run(*self._program, folder, None, it)),
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for it in each
            ]
            errors = [rank.communicate()[1] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise RuntimeError(f"{self._program[0]} has failed: {' '.join(errors)[-1500:]}")
        return lost(begun, times_in(folder), self._killed_at, self._steps)


@contextmanager
def environments(ranks: int) -> Iterator[list[dict[str, str]]]:
    """What ``torchrun`` sets for each rank, with a store as its agent has; nothing for one rank."""
    if ranks == 1:
        yield [{}]
        return
    import torch

    dist: Any = torch.distributed
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": f"{store.port}",
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RUN_ID": "bench",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": f"{ranks}",
        "LOCAL_WORLD_SIZE": f"{ranks}",
    }
    yield [{**shared, "RANK": f"{rank}", "LOCAL_RANK": f"{rank}"} for rank in range(ranks)]


def times_in(folder: str) -> list[float]:
    """Return when the last run in a folder made its steps, by its first rank."""
    times: list[float] = json.loads((Path(folder) / "times-0.json").read_text())
    return times


def per_1000(times: Sequence[float], first: int, last: int) -> float:
    """Return the seconds of 1,000 steps, measured from step ``first`` to step ``last``."""
    return (times[last - 1] - times[first - 1]) / (last - first) * 1000


def lost(begun: float, times: Sequence[float], killed_at: int, steps: int) -> float:
    """Return the seconds from ``begun`` until step ``killed_at`` was made again.

    ``times`` are those of the steps made since then, of which the last is step ``steps``.

    Raises:
        ValueError: They are all steps, or none before the kill.
    """
    behind = steps - killed_at
    if not behind < len(times) < killed_at:
        raise ValueError(f"{len(times)} steps were made after the kill at {killed_at} of {steps}")
    return times[-behind - 1] - begun
