"""After a Ctrl-C nobody waits long for a store: all that is left has two seconds.

All here only reads and replaces one number: a signal handler may interrupt any line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from runhooks import clock

#: In which a store that is well still gets the last events.
GRACE_SECS = 2.0

_HOLDS_SECS = 10.0  # then whoever goes on, as in a notebook, is patient again
LOOK_SECS = 0.2

_at = -math.inf


def interrupt() -> None:
    """Let requests under way, and those of the clean-up that follows, end soon."""
    global _at
    now = clock.monotonic()
    if now - _at > _HOLDS_SECS:
        _at = now


def forget_interrupt() -> None:
    global _at
    _at = -math.inf


@contextmanager
def interrupting() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        interrupt()
        raise


@contextmanager
def reading_threads(most: int = 16) -> Iterator[ThreadPoolExecutor]:
    """Give threads that a Ctrl-C soon ends."""
    with ThreadPoolExecutor(most, "runhooks-read") as threads, interrupting():
        yield threads


def interrupted_at() -> float:
    """Return when a Ctrl-C came last, by ``clock.monotonic()``; -inf: never."""
    return _at


def secs_left() -> float:
    """Return how long a store may be waited for; inf without a Ctrl-C."""
    since = clock.monotonic() - _at
    return max(0.0, GRACE_SECS - since) if 0 <= since <= _HOLDS_SECS else math.inf


def sleep(secs: float) -> None:
    """Sleep for ``secs``, or until a Ctrl-C comes in any thread."""
    end = clock.monotonic() + secs
    while (left := end - clock.monotonic()) > 0 and secs_left() == math.inf:
        time.sleep(min(left, LOOK_SECS))
