"""``WatchdogHook``: the stacks of a process that hangs."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
import weakref
from typing import Any, NamedTuple, Protocol

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunHook,
    StopSignal,
)
from runhooks.engines.foreign import session_of

_log = logging.getLogger("runhooks")


class _Dump(NamedTuple):
    time: float
    fd: int
    abort: bool


_lock = threading.RLock()  # a signal handler may fork inside
_dumps: dict[WatchdogHook, _Dump] = {}


def _set_timer() -> None:
    """Set the only timer of ``faulthandler`` to the earliest dump, under the lock."""
    now = time.monotonic()
    pending = [dump for dump in _dumps.values() if dump.time > now]
    if not pending:
        faulthandler.cancel_dump_traceback_later()
        return
    first = min(pending)
    faulthandler.dump_traceback_later(first.time - now, file=first.fd, exit=first.abort)


def _before_fork() -> None:
    _lock.acquire()
    if _dumps:  # a forked process would wait for the timer's thread for ever
        faulthandler.cancel_dump_traceback_later()


def _after_fork_in_parent() -> None:
    try:
        if _dumps:
            _set_timer()
    finally:
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


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class WatchdogHook(SessionRunHook):
    """Writes the stacks of all threads when no run has ended for ``secs`` seconds.

    It logs an error with the time and the step. Up to a second later, a timer in C writes the
    stacks, even if some code never releases the interpreter lock. It watches again once another
    run, such as one of an ``EvaluationHook``, has ended.

        hooks = [rh.WatchdogHook(secs=300)]

    Args:
        secs: The limit; above the longest pause, such as saving a checkpoint.
        first_secs: The limit for the first run, which compiles; None: ``secs``.
        abort: Whether to end the process then, with status 1. Nothing is saved.
        file: The file to write to; None: ``sys.stderr``.

    Raises:
        ValueError: For seconds that are not above zero, or if ``file`` has no file descriptor, like
            ``sys.stderr`` in some notebooks.
    """

    def __init__(
        self,
        secs: float,
        first_secs: float | None = None,
        abort: bool = False,
        file: HasFileno | None = None,
    ) -> None:
        arguments.given(secs=secs)
        arguments.finite(secs=secs, first_secs=first_secs)
        arguments.positive(secs=secs, first_secs=first_secs)
        self._secs = secs
        self._first_secs = secs if first_secs is None else first_secs
        self._abort = abort
        self._file = sys.stderr if file is None else file
        try:
            self._fd = self._file.fileno()
        except (AttributeError, OSError, ValueError):
            raise ValueError(
                f"file must have a fileno(), got {self._file!r}: give WatchdogHook "
                "file=open(path, 'w')"
            ) from None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._end_watch()
        # A dropped session does not hang.
        self._session = weakref.ref(session)
        self._mark(session_of(session).runs, self._first_secs)
        self._ended.clear()
        self._thread = threading.Thread(target=self._look_on, name="runhooks-watchdog", daemon=True)
        self._thread.start()

    def end(self, session: RawSession) -> None:
        self._end_watch()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._end_watch()

    def _end_watch(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None

    def _mark(self, seen: Any, secs: float) -> None:
        self._seen, self._limit_secs, self._since = seen, secs, clock.monotonic()
        self._is_reported = False
        with _lock:
            time_of_dump = time.monotonic() + secs + min(secs / 4, 1.0)
            _dumps[self] = _Dump(time_of_dump, self._fd, self._abort)
            _set_timer()

    def _look_on(self) -> None:
        try:
            while not self._ended.wait(self._secs_to_next_look()):
                session = self._session()
                if session is None:
                    return
                self._look(session)
                del session
        finally:
            with _lock:
                if _dumps.pop(self, None) is not None:
                    _set_timer()

    def _secs_to_next_look(self) -> float:
        secs = min(self._secs / 10, self._limit_secs / 10, 5.0)
        left = self._limit_secs - (clock.monotonic() - self._since)
        return secs if self._is_reported else max(0.0, min(secs, left))

    def _look(self, session: RawSession) -> None:
        raw = session_of(session)
        seen, secs = raw.runs, clock.monotonic() - self._since
        if seen != self._seen:
            if self._is_reported:
                _log.warning("the loop goes on, after %g seconds", round(secs, 2))
            self._mark(seen, self._secs)
        elif secs >= self._limit_secs and not self._is_reported:
            self._is_reported = True
            _log.error(
                "no run has ended for %g seconds, since global step %s: the stacks of all "
                "threads follow%s",
                self._limit_secs,
                # Before the first run, it may cost one, which could hang.
                raw.global_step if raw.runs else None,
                ", and the process is aborted" if self._abort else "",
            )
