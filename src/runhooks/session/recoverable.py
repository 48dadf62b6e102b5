"""``RecoverableSession``: replaces a lost session, and repeats the run that lost it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from runhooks import arguments, clock
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook, StopRequest
from runhooks.errors import FailedPreconditionError, UnavailableError, add_note, described
from runhooks.graph.base import BaseGraph, ClosedSessionError
from runhooks.ranks import current_group
from runhooks.session.hook_list import HookList
from runhooks.session.hooked import Iteration, LiveSession
from runhooks.session.scaffold import SessionCreator, opener_of

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class RecoveryPolicy:
    """How often, how quickly and for how long to replace lost sessions.

    Args:
        failures: How many consecutive failures to tolerate without progress: a new highest global
            step or, in a graph without one, a run.
        first_wait_secs: The wait before the second consecutive attempt, doubled for each further
            one; the first is made at once.
        longest_wait_secs: The longest wait between two attempts.
        limit_secs: How long after the first consecutive failure attempts are made.

    Raises:
        TypeError: For a value that is not a number.
        ValueError: For a value below 0, or an endless wait.
    """

    failures: int = 8
    first_wait_secs: float = 0.25
    longest_wait_secs: float = 30.0
    limit_secs: float = 1800.0

    def __post_init__(self) -> None:
        arguments.given(**vars(self))
        arguments.whole(0, failures=self.failures)
        arguments.not_negative(**vars(self))
        arguments.finite(
            first_wait_secs=self.first_wait_secs, longest_wait_secs=self.longest_wait_secs
        )
        if self.longest_wait_secs < self.first_wait_secs:
            raise ValueError(
                f"longest_wait_secs must not be below first_wait_secs={self.first_wait_secs!r}, "
                f"got {self.longest_wait_secs!r}"
            )

    def wait_secs(self, failure: int) -> float:
        """Return the seconds to wait after the n-th consecutive failure, counted from 1."""
        if failure == 1:
            return 0.0
        doublings = min(failure - 2, 64)  # more would overflow
        return min(self.longest_wait_secs, self.first_wait_secs * 2.0**doublings)


class RecoverableSession:
    """One thread replaces a lost session; others that make runs wait, ``should_stop`` does not.

    A stop request ends a wait between two attempts: one more is made at once.
    """

    def __init__(
        self,
        graph: BaseGraph,
        creator: Any,
        hooks: HookList,
        stop: StopRequest,
        grace_secs: float,
        policy: RecoveryPolicy,
        iteration: Iteration,
    ) -> None:
        self._iteration = iteration
        self._graph = graph
        self._creator = creator
        self._hooks = hooks
        self._stop = stop
        self._grace_secs = grace_secs
        self._is_lost = graph.engine.is_lost
        self._policy = policy
        self._failures = 0
        self._failing_since = 0.0
        self._is_last_attempt = False
        self._furthest: int | None = None
        self._last_step: int | None = None
        self._last_checkpoint: str | None = None
        self._lost: tuple[int | None, Exception] | None = None
        # Never held during calls or waits of others.
        self._changed = threading.Condition()
        self._replacer: int | None = None  # the thread that replaces the session
        self._closing: LiveSession | None = None  # whose threads it waits for
        self._is_over = False
        self.recoveries = 0
        self.session: LiveSession | None = None  # None while it is lost
        self._replace()

    @property
    def global_step(self) -> int | None:
        session = self.session
        return self._last_step if session is None else session.raw.global_step

    @property
    def is_within_step(self) -> bool:
        session = self.session
        return session is not None and session.hooked.is_within

    def should_stop(self) -> bool:
        with self._changed:
            if self._replacer not in (None, threading.get_ident()):
                return self._is_waited_for()  # only the threads of the lost one should stop
        try:
            return bool(self.call(_should_stop))
        except Exception:
            if self.session is None:  # nothing to close
                raise
            return True

    def call(self, act: Callable[[LiveSession], Any]) -> Any:
        """Return ``act(session)``, repeated in a new session whenever it is lost."""
        while True:
            session = self.session or self._replace()
            is_within = session.hooked.is_within
            try:
                return act(session)
            except Exception as error:
                if not self._means_loss(error, session):
                    raise
                _check_whole(is_within, error)
                lost_by = error
            try:
                self._replace(session, lost_by)
            finally:
                del lost_by  # its traceback holds this frame

    def run_after(self, session: LiveSession, error: Exception, caller: SessionRunArgs) -> Any:
        """Repeat a run, in which ``session`` has raised ``error``, in a new one, if it is lost."""
        try:
            _raise_cause(session, error)
        except Exception as cause:
            if not self._means_loss(cause, session):
                raise
            _check_whole(session.hooked.is_within, cause)
            self._replace(session, cause)
        return self.call(partial(run_watched, caller=caller))

    def finish(self, reason: str) -> None:
        """Replace no session any more; wait for a thread that does, whose waits ``reason`` ends."""
        with self._changed:
            self._is_over = True
            if self._replacer not in (None, threading.get_ident()):
                self._stop.ask(reason)
                self._changed.wait_for(lambda: self._replacer is None)

    def close(self) -> None:
        with self._changed:
            session = self.session
            if session is None:
                return
            self._last_step = self.global_step
            self._last_checkpoint = session.raw.checkpoint or self._last_checkpoint
            self._closing, self.session = session, None
            self._changed.notify_all()
        try:
            session.close(self._grace_secs)
        finally:
            self._closing = None

    def _means_loss(self, error: Exception, session: LiveSession) -> bool:
        """Return whether ``error`` has lost ``session``, or found it closed as it was lost."""
        if self._is_lost(error):
            return True
        with self._changed:
            is_replaced = self.session is not session and (
                self.session is not None or self._replacer is not None or self._lost is not None
            )
        return is_replaced and session.raw.found_closed(error)

    def _replace(
        self, lost: LiveSession | None = None, error: Exception | None = None
    ) -> LiveSession:
        """Return the session after ``lost``, opened if no thread has; or raise the last error."""
        if self._replacer == threading.get_ident():
            raise RuntimeError(
                "the monitored session was used while it opens: in after_create_session, use the "
                "session that the hook is given"
            )
        try:
            with self._changed:
                while self._replacer is not None:
                    if self._is_waited_for():
                        raise error or ClosedSessionError(
                            "the session is lost, and this thread, started beside it, is to stop"
                        )
                    self._changed.wait()
                if self.session is not None and self.session is not lost:
                    return self.session
                if self._is_over:
                    raise error or ClosedSessionError("the session is closed: create a new one")
                error = error if self.session is lost else None
                self._replacer = threading.get_ident()
            while True:
                if error is not None:
                    self._close_after(error)
                try:
                    return self._open()
                except Exception as failed:  # noqa: BLE001 - raised there
                    error = failed
        finally:
            del error  # its traceback holds this frame
            with self._changed:
                if self._replacer == threading.get_ident():
                    self._replacer = None
                    self._changed.notify_all()

    def _is_waited_for(self) -> bool:
        closing = self._closing
        return closing is not None and closing.coord.has_registered(threading.current_thread())

    def _open(self) -> LiveSession:
        opener = opener_of(self._graph)
        own = self._creator if isinstance(self._creator, SessionCreator) else None
        with self._graph.as_default():
            opener.prepare_graph()
            raw: RawSession = opener.as_raw_session(self._creator.create_session())
        raw.recoveries = self.recoveries + (self._lost is not None)
        raw.stop_request = self._stop
        session = LiveSession(raw, self._iteration)
        try:
            if own is not None and own.restores_from:
                _check_found(raw, self._last_checkpoint, own.restores_from)
            _check_objects(self._graph, raw)
            opener.start_threads(raw, session.coord)
            self._hooks.start(session)
        except BaseException:
            session.close(self._grace_secs)
            raise
        # A worker restores the states of the chief's hooks, and lacks these.
        if own is not None and own.is_chief and current_group().is_chief:
            self._hooks.compare_states(raw)
        self.session = session
        self._count_recovery(raw)
        return session

    def _close_after(self, error: Exception) -> None:
        """Close the session that ``error`` has lost, and wait; raise ``error`` to give up."""
        if not self._is_lost(error):
            if self._lost is not None:
                add_note(error, f"while replacing the session lost by {described(self._lost[1])}")
            raise error
        step = self.session.raw.global_step if self.session is not None else None
        if self._has_progressed(step):
            self._furthest, self._failures = step, 0
        if self._failures == 0:
            self._failing_since = clock.monotonic()
        self._failures += 1
        self._lost = self._lost or (step, error)
        if self._is_last_attempt or self._failures > self._policy.failures or self._secs_left() < 0:
            self._note_end(error)
            raise error
        try:
            self.close()
        except Exception as closing:  # noqa: BLE001 - what it was lost by matters more
            if closing is not error:
                _log.warning("closing the lost session raised %s", described(closing))
        secs = max(0.0, min(self._policy.wait_secs(self._failures), self._secs_left()))
        if secs > 0:
            _log.info("replacing the lost session in %g seconds: %s", secs, described(error))
        self._is_last_attempt = self._stop.wait(secs)

    def _secs_left(self) -> float:
        return self._failing_since + self._policy.limit_secs - clock.monotonic()

    def _has_progressed(self, step: int | None) -> bool:
        if self.session is None:
            return False
        if step is None:
            return self.session.hooked.runs > 0
        return self._furthest is None or step > self._furthest

    def _note_end(self, error: Exception) -> None:
        assert self._lost is not None
        (_, first), self._lost = self._lost, None
        if self._policy.failures == 0:
            return
        secs = clock.monotonic() - self._failing_since
        why = self._stop.reason if self._is_last_attempt else "see RecoveryPolicy"
        cause = "" if first is error else f"; the session was lost by {described(first)}"
        add_note(
            error,
            f"lost {self._failures} times in {round(secs, 2):g} seconds without progress: "
            f"giving up ({why}){cause}",
        )

    def _count_recovery(self, raw: RawSession) -> None:
        if self._lost is None:
            return
        step = raw.global_step
        resumed = "resumed from" if raw.checkpoint is not None else "started over at"
        (lost_at, error), self._lost = self._lost, None
        self.recoveries += 1
        # In words: the traceback of the error, which a log may keep, holds the session.
        cause = described(error)
        if step is None:
            _log.warning("session lost and replaced: %s", cause)
        elif lost_at is None:
            _log.warning("session lost while it was created, %s step %d: %s", resumed, step, cause)
        else:
            again = f", repeating {lost_at - step} steps" if step < lost_at else ""
            _log.warning(
                "session lost at step %d, %s step %d%s: %s",
                *(lost_at, resumed, step, again, cause),
            )


def _check_whole(is_within: bool, error: Exception) -> None:
    if is_within:
        add_note(
            error,
            "the session was lost in an iteration, or between the runs of one step, which only "
            "your loop can make again: restart the program from the last checkpoint",
        )
        raise error


def run_watched(
    session: LiveSession,
    caller: SessionRunArgs,
    run_metadata: Any = None,
    hooks: Iterable[SessionRunHook] | None = None,
) -> Any:
    """Make one run with hooks; raise the error of a thread in place of its effect."""
    coord = session.coord
    if coord.should_stop():
        coord.raise_requested_exception()
    try:
        return session.hooked.run_with_hooks(caller, run_metadata, hooks)
    except Exception as error:  # noqa: BLE001 - raised there
        _raise_cause(session, error)


def _raise_cause(session: LiveSession, error: Exception) -> NoReturn:
    try:
        session.coord.raise_requested_exception()
    except Exception as cause:
        if cause is not error:
            raise cause from error
    raise error


def _should_stop(session: LiveSession) -> bool:
    if session.hooked.saved_in is not None:
        session.hooked.check_iteration()
    session.coord.raise_requested_exception()
    return session.stop_reason is not None


def _check_found(
    raw: RawSession, last_checkpoint: str | None, restores_from: str | os.PathLike[str]
) -> None:
    directory = os.fspath(restores_from)
    lies_there = [
        path is not None and Path(path).parent == Path(directory)
        for path in (last_checkpoint, raw.checkpoint)
    ]
    if lies_there == [True, False]:
        raise UnavailableError(
            f"no checkpoint is found in {directory!r} any more, where {last_checkpoint!r} was "
            "saved: to start over would lose its steps",
            path=directory,
        )


def _check_objects(graph: BaseGraph, raw: RawSession) -> None:
    objects = graph.objects
    if objects is None:
        return
    if raw.recoveries and objects.changed:
        raise FailedPreconditionError(
            f"the session was lost and there is no checkpoint to restore: its steps have changed "
            f"{objects} in place; give checkpoint_dir"
        )
    if objects.changed:
        _log.warning(
            "the session starts at step %s with %s as an earlier session has left them: if that "
            "is not intended, restore a checkpoint, or make them and the graph anew",
            *(raw.global_step, objects),
        )
    objects.settle()
