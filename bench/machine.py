"""What the figures were taken on: processors, memory, versions; and who else was at work."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import TypedDict


class Machine(TypedDict):
    """It has no name, so that the figures may be shown to anyone."""

    processor: str
    cores: int
    memory_gb: float
    system: str
    python: str


def machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        system=platform.system(),
        python=platform.python_version(),
    )


def versions() -> dict[str, str]:
    """Return those of all packages that are installed."""
    found = {it.metadata["Name"]: it.version for it in metadata.distributions()}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def commit() -> tuple[str, bool]:
    """Return the commit of the code that is measured, and whether it was changed since.

    The commit is empty outside a checkout.
    """
    changed = _git("status", "--porcelain", "--", ":/src", ":/bench/*.py")
    return _git("rev-parse", "HEAD"), bool(changed)


class Processors:
    """Watches how much of the processors' time other programs take, from now on."""

    def __init__(self) -> None:
        self._begin, self._all, self._mine = time.perf_counter(), _busy(), _mine()

    def used_by_others(self) -> float | None:
        """Return their share, from 0 to 1; None where the system does not tell.

        A process of ours counts as another's until it has been waited for.
        """
        all_of_them = _busy()
        if all_of_them is None or self._all is None:
            return None
        theirs = all_of_them - self._all - (_mine() - self._mine)
        whole = (time.perf_counter() - self._begin) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, theirs / whole))


def _busy() -> float | None:
    """Seconds that all processors together have worked."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except FileNotFoundError:
        return None
    user, nice, system, _, _, interrupts, soft, stolen, *_ = map(int, line.split()[1:])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _mine() -> float:
    """Seconds that this process has worked, and those that it has waited for."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
