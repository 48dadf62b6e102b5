"""The time: ``monotonic()`` for intervals, ``wall()`` for time stamps, both in seconds.

Everything in runhooks asks this module, as ``clock.monotonic()``, so that a test can replace the
clock for a while with ``use``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from runhooks.contexts import contextmanager


class Clock(Protocol):
    """A source of the time, in seconds."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


# Functions of `time` themselves: an off-step may read the time, and a second call would show.
monotonic: Callable[[], float] = time.monotonic
wall: Callable[[], float] = time.time


class _Agreed(threading.local):
    """The time at which hooks stand inside ``standing_at``: ranks may be threads of a process."""

    time: float | None = None


_agreed = _Agreed()


def hook_times() -> tuple[float, float]:
    """Return ``monotonic()`` and ``wall()`` as timers take them.

    Those of hooks that must act in the same run on several ranks stand still between the moments
    that the ranks agree on; there is no wall clock then: it is NaN.
    """
    time = _agreed.time
    return (monotonic(), wall()) if time is None else (time, math.nan)


@contextmanager
def standing_at(time: float) -> Iterator[None]:
    """Let ``hook_times`` be ``time`` in the ``with`` block, in this thread."""
    before, _agreed.time = _agreed.time, time
    try:
        yield
    finally:
        _agreed.time = before


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Take the time from ``clock`` in the ``with`` block, in every thread."""
    global monotonic, wall
    before = monotonic, wall
    monotonic, wall = clock.monotonic, clock.wall
    try:
        yield
    finally:
        monotonic, wall = before
