"""What SIGTERM does to a program that has not said so itself: files are flushed, then it ends."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

from runhooks.events import background

#: How long the signal waits for the files: less than what the usual supervisors wait for a process.
GRACE_SECS = 5

_logger = logging.getLogger("runhooks")
_installed = False


def install() -> None:
    """Have SIGTERM flush all files before it ends the process, unless it has a handler already.

    Once in a process; Python handles signals in the main thread alone, in any other this does
    nothing. Whoever sets a handler later takes the place of this one.
    """
    global _installed
    if _installed or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_end)
        _installed = True


def _flush_and_end(number: int, frame: FrameType | None) -> None:
    if signal.getsignal(number) is not _flush_and_end:
        # Another handler has taken the place, and calls what it found there: the end is its own.
        return
    try:
        background.flush_all(timeout=GRACE_SECS)
    except Exception:
        _logger.exception("events were lost as SIGTERM ended the process")
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
