"""The stacks of all threads, dumped at a moment that may be put off; for several who wait for one.

``faulthandler`` has one timer for the process: it is set to whoever's moment comes first.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from typing import NamedTuple


class _Dump(NamedTuple):
    time: float  # of the timer in C, which knows of no other clock
    fd: int
    abort: bool


_lock = threading.Lock()
_dumps: dict[object, _Dump] = {}


def arm(owner: object, secs: float, fd: int, abort: bool) -> None:
    """In ``secs`` seconds dump to the file descriptor ``fd``, in place of what ``owner`` had armed.

    ``abort``: and end the process.
    """
    with _lock:
        _dumps[owner] = _Dump(time.monotonic() + secs, fd, abort)
        _set_timer()


def disarm(owner: object) -> None:
    """Forget what ``owner`` had armed."""
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
