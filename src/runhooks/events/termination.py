"""What SIGTERM does to a program that has not said so itself: files are flushed, then it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import weakref
from types import FrameType

from runhooks.events import background
from runhooks.events.insistence import Insistence
from runhooks.events.one_line import one_line

#: How long the signal waits for the files: less than what the usual supervisors wait for a process.
GRACE_SECS = 5

_logger = logging.getLogger("runhooks")
_guarded: weakref.WeakSet[object] = weakref.WeakSet()
_masks = threading.local()
_insistence: Insistence | None = None
_ending = False


def guard(writer: object) -> None:
    """Have SIGTERM flush all files before it ends the process, unless it has a handler already.

    That is so until ``writer``, and whatever else is guarded, is released. Python handles signals
    in the main thread alone, in any other this does nothing. Whoever sets a handler later takes
    the place of this one.
    """
    _guarded.add(writer)
    _install()


def release(writer: object) -> None:
    """Guard ``writer`` no longer; the handler goes with the last one, if it is still ours."""
    _guarded.discard(writer)
    if not _guarded and _is_ours() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _install() -> None:
    global _insistence
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_end)
        if _insistence is None and _is_child_of_multiprocessing():
            _insistence = Insistence(signal.SIGTERM, lambda: _ending or not _is_ours())


def _is_child_of_multiprocessing() -> bool:
    multiprocessing = sys.modules.get("multiprocessing")
    on_windows = not hasattr(signal, "pthread_kill")  # where nobody sends this signal
    return (
        not on_windows
        and multiprocessing is not None
        and multiprocessing.parent_process() is not None
    )


def _is_ours() -> bool:
    return signal.getsignal(signal.SIGTERM) is _flush_and_end


def _flush_and_end(number: int, frame: FrameType | None) -> None:
    global _ending
    if not _is_ours():
        # Another handler has taken the place, and calls what it found there: the end is its own.
        return
    _ending = True
    try:
        background.flush_all(timeout=GRACE_SECS)
    except Exception as error:  # noqa: BLE001 (nobody is there to get it)
        _logger.error("events were lost as SIGTERM ended the process: %s", one_line(error))
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _before_fork() -> None:
    # A signal would find the child with the handler, but not yet ready for it.
    if _is_ours():
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _forked() -> None:
    # A child that has nothing to write is to be ended by the system: see Insistence.
    global _insistence
    if _insistence is not None:
        _insistence.forked()
        _insistence = None
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
