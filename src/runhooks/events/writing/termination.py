"""SIGTERM in a program without a handler of its own: files are flushed, then the process ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType

from runhooks.errors import error_text
from runhooks.events.writing import background

#: Seconds that the handler waits for the files, less than the grace period of usual supervisors.
GRACE_SECS = 5

_REPEAT_SECS = 0.05

_logger = logging.getLogger("runhooks")


class _SignalRepeater:
    """Once the signal ``number`` came, sends it again every 0.05 seconds until ``is_over()``.

    Python calls handlers only between two bytecodes. If the signal comes just as a lock of
    multiprocessing is released, the main thread keeps waiting for that lock, and its handler is
    never called; but a pool that ends its workers sends SIGTERM once and waits for them for ever.

    It is made in the main thread, and does nothing if the wakeup descriptor is in use, as asyncio
    does.
    """

    def __init__(self, number: signal.Signals, is_over: Callable[[], bool]) -> None:
        self._number = number
        self._is_over = is_over
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        threading.Thread(target=self._repeat, name="runhooks-sigterm", daemon=True).start()

    def forked(self) -> None:
        """Leave the pipe to the parent."""
        before = signal.set_wakeup_fd(-1)
        if before != self._writer:
            signal.set_wakeup_fd(before)
        os.close(self._reader)
        os.close(self._writer)

    def _repeat(self) -> None:
        while came := os.read(self._reader, 1):
            while came[0] == self._number and not self._is_over():
                time.sleep(_REPEAT_SECS)
                signal.pthread_kill(threading.main_thread().ident or 0, self._number)


_guarded: weakref.WeakSet[object] = weakref.WeakSet()
_masks = threading.local()
_repeater: _SignalRepeater | None = None
_ending = False


def guard(writer: object) -> None:
    """Have SIGTERM flush all files before it ends the process, unless it has a handler already.

    This holds until ``writer``, and all others that are guarded, are released or gone. Python sets
    handlers in the main thread only; in any other thread this does nothing. A handler that is set
    later replaces this one.
    """
    _guarded.add(writer)
    _install()


def release(writer: object) -> None:
    """Stop guarding ``writer``; after the last one our handler, if still set, is removed."""
    _guarded.discard(writer)
    if not _guarded and _is_ours() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _install() -> None:
    global _repeater
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_end)
        if _repeater is None and _is_child_of_multiprocessing():
            _repeater = _SignalRepeater(signal.SIGTERM, lambda: _ending or not _is_ours())


def _is_child_of_multiprocessing() -> bool:
    multiprocessing = sys.modules.get("multiprocessing")
    on_windows = not hasattr(signal, "pthread_kill")  # where this signal is never sent
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
        # Another handler has replaced this one and calls it: it decides how the process ends.
        return
    _ending = True
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
    # A child with nothing to write is to be ended by the system: see _SignalRepeater.
    global _repeater
    if _repeater is not None:
        _repeater.forked()
        _repeater = None
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
