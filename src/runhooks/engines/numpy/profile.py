"""Profiles Python with ``cProfile``."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from pathlib import Path


def start_python_profile(folder: Path, step: int) -> Callable[[], Path]:
    """Start a profile as ``Framework.start_profile``; file: ``profile-<step>.pstats``.

    It holds the calls of the thread that runs the session. Other threads are not measured: waiting
    for them shows as time of the call that waits.
    """
    if sys.getprofile() is not None:
        raise RuntimeError("another Python profiler is running in this thread")
    profile = cProfile.Profile()
    try:
        profile.enable()
    except ValueError as error:  # Python 3.12 and later
        raise RuntimeError("another Python profiler is running") from error

    def stop() -> Path:
        profile.disable()
        path = folder / f"profile-{step}.pstats"
        profile.dump_stats(path)
        return path

    return stop
