"""The time: ``monotonic()`` for intervals, ``wall()`` for time stamps, both in seconds.

A test can replace both with ``use``, or by replacing ``time.time``, which the next ``hook_times``
notices.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


# Not wrapped: an off-step may read the time.
_MONOTONIC, _WALL = time.monotonic, time.time
monotonic: Callable[[], float] = _MONOTONIC
wall: Callable[[], float] = _WALL

_AHEAD = _MONOTONIC() - _WALL()


def _replaced_monotonic() -> float:
    return time.time() + _AHEAD


def _replaced_wall() -> float:
    return time.time()


def _heed_replacement() -> None:
    """Go by ``time.time`` while a test replaces it, as TensorFlow's timers do."""
    global monotonic, wall
    replaced = time.time is not _WALL
    if replaced and (monotonic, wall) == (_MONOTONIC, _WALL):
        monotonic, wall = _replaced_monotonic, _replaced_wall
    elif not replaced and monotonic is _replaced_monotonic:
        monotonic, wall = _MONOTONIC, _WALL


class _Agreed(threading.local):
    time: float | None = None


_agreed = _Agreed()


def hook_times() -> tuple[float, float]:
    """Return ``monotonic()`` and ``wall()`` for timers.

    Of hooks that must act in the same run on several ranks, the first stands still between the
    moments that the ranks agree on, and the second is NaN.
    """
    _heed_replacement()
    agreed = _agreed.time
    return (monotonic(), wall()) if agreed is None else (agreed, math.nan)


@contextmanager
def standing_at(time: float) -> Iterator[None]:
    """Let ``hook_times`` stand at ``time`` in the block, in this thread."""
    before, _agreed.time = _agreed.time, time
    try:
        yield
    finally:
        _agreed.time = before


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Take the time from ``clock`` in the block, in every thread."""
    global monotonic, wall
    before = monotonic, wall
    monotonic, wall = clock.monotonic, clock.wall
    try:
        yield
    finally:
        monotonic, wall = before
