"""Timers that dump the stacks of all threads; each may be postponed.

``faulthandler`` has one timer for the process. It is set to the earliest of all. A forked process
has none: it would wait for ever for the thread of the timer, which was not forked.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import NamedTuple


class _Dump(NamedTuple):
    time: float  # of the clock that the timer in C uses
    fd: int
    abort: bool


_lock = threading.Lock()
_dumps: dict[object, _Dump] = {}


def arm(owner: object, secs: float, fd: int, abort: bool) -> None:
    """Set the timer of ``owner``, replacing an earlier one.

    Args:
        owner: Whose timer it is.
        secs: Seconds from now.
        fd: The file descriptor to dump to.
        abort: Whether to end the process after the dump.
    """
    with _lock:
        _dumps[owner] = _Dump(time.monotonic() + secs, fd, abort)
        _set_timer()


def disarm(owner: object) -> None:
    """Cancel the timer of ``owner``."""
    with _lock:
        if _dumps.pop(owner, None) is not None:
            _set_timer()


def _set_timer() -> None:
    now = time.monotonic()
    pending = [dump for dump in _dumps.values() if dump.time > now]
    if not pending:
        faulthandler.cancel_dump_traceback_later()
        return
    first = min(pending)
    faulthandler.dump_traceback_later(first.time - now, file=first.fd, exit=first.abort)


def _before_fork() -> None:
    _lock.acquire()
    if _dumps:
        faulthandler.cancel_dump_traceback_later()


def _after_fork_in_parent() -> None:
    if _dumps:
        _set_timer()
    _lock.release()


def _after_fork_in_child() -> None:
    _dumps.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
