"""After a Ctrl-C nobody waits long for a store: what is left to do has two seconds, all in all.

Everything here only reads and replaces one number, because a signal handler may interrupt any line.
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

# Whoever goes on after a Ctrl-C, as in a notebook, is patient again then.
_HOLDS_SECS = 10.0
_LOOK_SECS = 0.2

# In a store, where looking at one takes as long as looking at many.
_MOST_AT_ONCE = 16

_at = -math.inf


def interrupt() -> None:
    """Let requests that are under way, and those of the clean-up that follows, end soon."""
    global _at
    now = clock.monotonic()
    if now - _at > _HOLDS_SECS:
        _at = now


def forget_interrupt() -> None:
    """Be as patient again as before a Ctrl-C: something new begins."""
    global _at
    _at = -math.inf


@contextmanager
def interrupting() -> Iterator[None]:
    """Call ``interrupt`` if a Ctrl-C ends the ``with`` block, in which a store is waited for."""
    try:
        yield
    except KeyboardInterrupt:
        interrupt()
        raise


@contextmanager
def reading_threads() -> Iterator[ThreadPoolExecutor]:
    """Give threads that read files, several at a time; a Ctrl-C in the block soon ends them."""
    with ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-read") as threads, interrupting():
        yield threads


def interrupted_at() -> float:
    """Return when a Ctrl-C came last, as ``clock.monotonic()``; -inf: never."""
    return _at


def secs_left() -> float:
    """Return for how many seconds a store may still be waited for; inf without a Ctrl-C."""
    since = clock.monotonic() - _at
    return max(0.0, GRACE_SECS - since) if 0 <= since <= _HOLDS_SECS else math.inf


def look_secs() -> float:
    """Return for how many seconds to wait, at most, before ``secs_left`` is asked again."""
    return min(_LOOK_SECS, secs_left())


def sleep(secs: float) -> None:
    """Sleep for ``secs``, or until a Ctrl-C comes in any thread."""
    end = clock.monotonic() + secs
    while (left := end - clock.monotonic()) > 0 and secs_left() == math.inf:
        time.sleep(min(left, _LOOK_SECS))
