"""``WatchdogHook``: shows where the process hangs."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from typing import Any, Protocol

from runhooks import arguments, clock
from runhooks.contract import RawSession, SessionRunHook, StopSignal
from runhooks.hooks.stack_dumps import arm, disarm

_log = logging.getLogger("runhooks")

_LONGEST_LOOK_SECS = 5.0
_LONGEST_GRACE_SECS = 1.0


class HasFileno(Protocol):
    """A file of the operating system."""

    def fileno(self) -> int: ...


class WatchdogHook(SessionRunHook):
    """Shows the stacks of all threads when no run has ended for ``secs`` seconds.

    ``first_secs``: the same up to the end of the first run, in which things are compiled; None:
    ``secs``. Each should be longer than the longest pause there may be, such as the saving of a
    checkpoint. ``file``: where the stacks go; None: ``sys.stderr``. ``abort``: end the process
    after that, at once and with the status 1: nothing is saved, a supervisor may start it again.

    First an error is logged that says since when, and at which step, nothing moves. The stacks are
    written, up to a second later, by a timer in C: even where some code never gives the
    interpreter lock back. After that nothing happens until a run ends, and then it watches again.
    The runs of an ``EvaluationHook`` count too. It costs a run nothing.

    Raises ValueError for seconds that are not above zero, and if ``file`` is none of the operating
    system, as ``sys.stderr`` is in some notebooks: the timer cannot write to it.
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
        self._fd = _file_descriptor(self._file)
        self._watch: _Watch | None = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._end_watch()
        self._watch = _Watch(session, self._first_secs, self._secs, self._fd, self._abort)

    def end(self, session: RawSession) -> None:
        self._end_watch()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.end()
            self._watch = None


class _Watch:
    """A thread that looks at a session again and again, and puts the dump off when it gets on."""

    def __init__(
        self, session: RawSession, first_secs: float, secs: float, fd: int, abort: bool
    ) -> None:
        # A session that is dropped without being closed is not one that hangs.
        self._session = weakref.ref(session)
        self._secs = secs
        self._fd = fd
        self._abort = abort
        self._ended = threading.Event()
        self._mark(_progress(session), first_secs)
        self._thread = threading.Thread(target=self._look_on, name="runhooks-watchdog", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _mark(self, seen: Any, secs: float) -> None:
        self._seen, self._limit_secs, self._since = seen, secs, clock.monotonic()
        self._is_reported = False
        arm(self, secs + min(secs / 4, _LONGEST_GRACE_SECS), self._fd, self._abort)

    def _look_on(self) -> None:
        try:
            while not self._ended.wait(self._secs_to_next_look()):
                session = self._session()
                if session is None:
                    return
                self._look(session)
                del session
        finally:
            disarm(self)

    def _secs_to_next_look(self) -> float:
        secs = min(self._secs / 10, self._limit_secs / 10, _LONGEST_LOOK_SECS)
        left = self._limit_secs - (clock.monotonic() - self._since)
        return secs if self._is_reported else max(0.0, min(secs, left))

    def _look(self, session: RawSession) -> None:
        seen, secs = _progress(session), clock.monotonic() - self._since
        if seen != self._seen:
            if self._is_reported:
                _log.warning("runs end again, after %g seconds", round(secs, 2))
            self._mark(seen, self._secs)
        elif secs >= self._limit_secs and not self._is_reported:
            self._is_reported = True
            _log.error(
                "no run has ended for %g seconds, since global step %s: the stacks of all "
                "threads follow%s",
                self._limit_secs,
                getattr(session, "global_step", None),
                ", and the process is aborted" if self._abort else "",
            )


def _progress(session: RawSession) -> Any:
    return getattr(session, "runs", None), getattr(session, "global_step", None)


def _file_descriptor(file: HasFileno) -> int:
    try:
        return file.fileno()
    except (AttributeError, OSError, ValueError):
        raise ValueError(
            f"file must be a file of the operating system, with a fileno(), got {file!r}: "
            "give WatchdogHook file=open(path, 'w')"
        ) from None
