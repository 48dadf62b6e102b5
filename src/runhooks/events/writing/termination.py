"""SIGTERM in a program without a handler of its own: files are flushed, then the process ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import weakref
from types import FrameType

from runhooks.errors import error_text
from runhooks.events.writing import background

#: Seconds that the handler waits for the files, less than the grace period of usual supervisors.
GRACE_SECS = 5

_logger = logging.getLogger("runhooks")


_guarded: weakref.WeakSet[object] = weakref.WeakSet()
_masks = threading.local()


def guard(writer: object) -> None:
    """Have SIGTERM flush all files before it ends the process, unless it has a handler already.

    This holds until ``writer``, and all others that are guarded, are released or gone. Python sets
    handlers in the main thread only; in any other thread this does nothing. A handler that is set
    later replaces this one.

    In a child of multiprocessing it does nothing, either. A pool that ends its workers sends
    SIGTERM once, and waits for them for ever; but Python calls handlers between two bytecodes, and
    never in a worker that waits for a lock.
    """
    _guarded.add(writer)
    _install()


def release(writer: object) -> None:
    """Stop guarding ``writer``; after the last one our handler, if still set, is removed."""
    _guarded.discard(writer)
    if not _guarded and _is_ours() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _install() -> None:
    if threading.current_thread() is not threading.main_thread() or _is_child():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_end)


def _is_child() -> bool:
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _is_ours() -> bool:
    return signal.getsignal(signal.SIGTERM) is _flush_and_end


def _flush_and_end(number: int, frame: FrameType | None) -> None:
    if not _is_ours():
        # Another handler has replaced this one and calls it: it decides how the process ends.
        return
    try:
        background.finish_all(timeout=GRACE_SECS)
    except Exception as error:  # noqa: BLE001 (no caller is left)
        _logger.error("events were lost as SIGTERM ended the process: %s", error_text(error))
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _before_fork() -> None:
    # A signal that comes too early would find the handler in a child not yet ready for it.
    if _is_ours():
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _forked() -> None:
    # A child with nothing to write is to be ended by the system: see guard.
    if _is_ours():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unmask()


def _unmask() -> None:
    before = _masks.__dict__.pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


background.call_at_start(_install)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_unmask, after_in_child=_forked)
