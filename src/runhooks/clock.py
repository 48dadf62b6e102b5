"""Time: ``monotonic()`` for intervals, ``wall()`` for stamps, both in seconds.

Everything in runhooks asks this module for the time, as ``clock.monotonic()``, so that a test can
put a clock of its own in its place for a while with ``use``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from, in seconds."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


# Plain module attributes: an off-step may read the time, and a second call would show.
monotonic: Callable[[], float] = time.monotonic
wall: Callable[[], float] = time.time


_time = time.time


def wall_as_told() -> float:
    """As ``wall``; where somebody's test has put a function in the place of ``time.time``, that."""
    return time.time() if wall is _time else wall()


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Take the time from ``clock`` inside the ``with`` block, in every thread."""
    global monotonic, wall
    before = monotonic, wall
    monotonic, wall = clock.monotonic, clock.wall
    try:
        yield
    finally:
        monotonic, wall = before
