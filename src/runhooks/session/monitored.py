"""``MonitoredSession``: a session with hooks, threads watched, and losses repaired.

run -> RecoverableSession -> CoordinatedSession -> HookedSession -> Session
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook
from runhooks.errors import (
    FailedPreconditionError,
    OutOfRangeError,
    cause,
    described,
    good_ends,
)
from runhooks.graph import Graph, get_default_graph
from runhooks.graph.parts import Parts
from runhooks.session.coordinated import CoordinatedSession
from runhooks.session.coordinator import Coordinator
from runhooks.session.creators import SessionCreator, creator_for
from runhooks.session.hooked import HookedSession
from runhooks.session.interruption import Interruption
from runhooks.session.launcher import launcher_of
from runhooks.session.recoverable import RecoverableSession, RecoveryPolicy
from runhooks.session.roster import Roster, errors_of
from runhooks.session.session import Session
from runhooks.session.step_context import StepContext, check_step_fn
from runhooks.session.stop_request import StopRequest

_log = logging.getLogger("runhooks")


class MonitoredSession:
    """Runs a graph with hooks, as ``tf.compat.v1.train.MonitoredSession`` does.

    It calls the hooks (``runhooks.contract.life_cycle`` says when), saves nothing by itself, and
    when the session is lost it creates a new one and repeats the run, as ``recovery`` allows. As a
    context manager it ends well at ``OutOfRangeError`` and ``StopIteration``, which it swallows.
    In the main thread, SIGTERM and the first Ctrl-C make ``should_stop()`` true, so that the loop
    ends well after the running step; a second Ctrl-C interrupts it. A loop that has never called
    ``should_stop()`` is ended by ``run``: one more goes ahead, the next raises OutOfRangeError.

    Where it differs from TensorFlow's, it is meant to: a thread that fails under the coordinator is
    a failure of the loop, and no clean stop; recovery has a limit; every hook's ``end`` is called,
    whatever another raises; ``close`` may be called twice.

    One that is dropped without ``close`` ends nothing, and lets go of the signals.

    ``session_creator``: a ``ChiefSessionCreator()`` if None, or what the worker context of
    TensorFlow's distribute coordinator says. ``hooks``: called in this order,
    those whose ``last`` is true after the others. ``stop_grace_period_secs``: how long threads may
    take to stop. The default graph is the one it runs.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        recovery: RecoveryPolicy | None = None,
    ) -> None:
        arguments.not_negative(stop_grace_period_secs=stop_grace_period_secs)
        arguments.instance(RecoveryPolicy, recovery=recovery)
        self._graph = get_default_graph()
        self._hooks = Roster(self._graph, hooks)
        self._stop = StopRequest()
        self._tests_stop = False  # whether should_stop() was ever called
        self._runs_left: int | None = None  # before run ends the loop; None: it does not
        self._recoveries = 0
        self._last_step: int | None = None
        self._session: RecoverableSession | None = None
        launcher = launcher_of(self._graph)
        creator = session_creator or creator_for(launcher.role("", True, None))
        if isinstance(creator, SessionCreator):
            creator.stop_request = self._stop
        # Not a method: in a circle with this object it would outlive its last user for a while.
        create = partial(
            _create, self._graph, creator, self._hooks, stop_grace_period_secs, self._stop
        )
        is_lost, policy = self._graph.engine.is_lost, recovery or RecoveryPolicy()
        with ExitStack() as at_end:
            at_end.enter_context(self._graph.in_use())
            try:
                self._hooks.begin()
                self._session = RecoverableSession(create, is_lost, policy, self._stop)
            except BaseException as error:
                self._hooks.tell_failure(None, error)
                raise
            at_end.enter_context(Interruption(self._interrupt))
            self._at_end = at_end.pop_all()

    @property
    def graph(self) -> Graph:
        """The graph it runs; of TensorFlow, a ``tf.Graph``."""
        return self._graph.launched

    @property
    def global_step(self) -> int | None:
        """The global step, known without a run; None if the graph has none.

        After ``close``, and while a lost session is replaced, what it was last.
        """
        return self._last_step if self._session is None else self._session.global_step

    @property
    def stop_reason(self) -> str | None:
        """Why it stops: the hook or signal that asked for it, or the words of ``request_stop``."""
        inner = None if self._session is None else self._session.session
        return self._stop.reason or (None if inner is None else inner.stop_reason)

    @property
    def recoveries(self) -> int:
        """How many times a lost session was replaced."""
        return self._recoveries if self._session is None else self._session.recoveries

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Iterable[SessionRunHook] | bool | None = None,
    ) -> Any:
        """Compute ``fetches``, as ``Session.run``, with what the hooks ask for in the same run.

        ``hooks=False``: no hook rides along; a list: only these, and one that is new to the
        session joins it for runs that name it. Raises RuntimeError after ``close``, and, unless
        ``hooks`` is given, after a hook has asked to stop; and what the run, a hook or a thread
        raises.
        """
        session = self._session
        if session is None:
            raise RuntimeError("run was called on a closed session: create a new one")
        if hooks is None or hooks is True:
            if self._runs_left is not None:
                self._take_run()
            return session.run(fetches, feed_dict, options, run_metadata)
        chosen = self._hooks.chosen(hooks, session.session)
        return session.run(fetches, feed_dict, options, run_metadata, chosen)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call ``step_fn(step_context)`` and return what it returns.

        Its one argument must go by that name, as in TensorFlow. It may run the raw
        ``step_context.session`` and ``step_context.run_with_hooks``. Raises TypeError or ValueError
        if it is no such function, and what it raises.
        """
        check_step_fn(step_fn)
        if self._session is None:
            raise RuntimeError("run_step_fn was called on a closed session: create a new one")
        if self._runs_left is not None:
            self._take_run()

        def step(inner: CoordinatedSession) -> Any:
            def run_with_hooks(
                fetches: Any,
                feed_dict: Any = None,
                options: Any = None,
                run_metadata: Any = None,
                *,
                hooks: Iterable[SessionRunHook] | bool | None = None,
            ) -> Any:
                chosen = self._hooks.chosen(hooks, inner)
                return inner.run(fetches, feed_dict, options, run_metadata, chosen)

            return step_fn(StepContext(inner.raw, run_with_hooks))

        return self._session.call(step)

    def should_stop(self) -> bool:
        """Whether the loop is to end.

        So it is when a thread under the coordinator has failed: ``run``, ``close`` and the end of
        the ``with`` block raise what it failed with.
        """
        self._tests_stop = True
        if self._session is None or self._stop.reason is not None:
            return True
        return self._session.should_stop()

    def request_stop(self, reason: str = "request_stop was called") -> None:
        """Make ``should_stop()`` true. Any thread may call it, and a signal handler."""
        self._stop.ask(reason)

    def close(self) -> None:
        """End well: ``end`` of every hook, then the threads, then the session.

        May be called again. Everything is ended in any case; the first error is raised, with notes
        on the others.
        """
        self._close(None)

    #: As in TensorFlow, where it goes by this name.
    StepContext = StepContext

    def __enter__(self) -> MonitoredSession:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(exc, good_ends()):
            self.request_stop(cause(exc))
            exc = None
        self._close(exc)
        return exc is None

    def _raw(self) -> Session | None:
        inner = None if self._session is None else self._session.session
        return None if inner is None else inner.raw

    def _interrupt(self, number: int) -> None:
        self.request_stop(signal.Signals(number).name)
        if not self._tests_stop and self._runs_left is None:
            self._runs_left = 1  # the caller may have decided on it already
        if number == signal.SIGINT:
            when = b"" if self._session is None else b" after this step"
            with suppress(OSError):  # not print: a handler may interrupt one
                os.write(2, b"\nending%s; Ctrl-C once more interrupts it\n" % when)

    def _take_run(self) -> None:
        if not self._runs_left:
            raise OutOfRangeError(
                f"{self.stop_reason} ends the loop; it may test should_stop() to end by itself"
            )
        self._runs_left -= 1

    def _close(self, error: BaseException | None) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        with self._at_end:
            try:
                self._end(session, error)
            finally:
                self._recoveries, self._last_step = session.recoveries, session.global_step

    def _end(self, session: RecoverableSession, error: BaseException | None) -> None:
        inner = session.session
        raw = None if inner is None else inner.raw
        outcome = error if error is not None else _thread_failure(inner)
        reason = "close was called" if outcome is None else described(outcome)
        self._stop.ask((inner and inner.stop_reason) or reason)
        step = None if raw is None else raw.global_step
        errors = [] if outcome is None else [outcome]
        try:
            if outcome is None and raw is not None:
                errors += self._hooks.end(raw)
            else:
                self._hooks.tell_failure(raw, outcome or RuntimeError("the session was lost"))
        finally:
            errors += [e for e in errors_of(session.close) if not isinstance(e, good_ends())]
            at_step = "" if step is None else f" at step {step}"
            _log.info("the session has ended%s: %s", at_step, self._stop.reason)
        for other in errors[1:]:
            if other is not errors[0]:
                errors[0].add_note(f"closing the session then raised {other!r}")
        if errors and errors[0] is not error:
            raise errors[0]


def _create(
    graph: Graph,
    creator: SessionCreator,
    hooks: Roster,
    grace_secs: float,
    stop: StopRequest,
    recoveries: int,
) -> CoordinatedSession:
    launcher = launcher_of(graph)
    with graph.as_default():
        launcher.prepare_graph()
        raw = launcher.adopt(creator.create_session())
    if graph.parts is not None:
        _check_parts(graph.parts, raw, recoveries)
    raw.recoveries, raw.stop_request = recoveries, stop
    coord = Coordinator(clean_stop_exception_types=())
    session = CoordinatedSession(raw, HookedSession(raw), coord, grace_secs)
    try:
        launcher.start_threads(raw, coord)
        hooks.start(session)
    except BaseException:
        session.close()
        raise
    if getattr(creator, "takes_states", False):
        hooks.compare_states(raw)
    return session


def _check_parts(parts: Parts, raw: Session, recoveries: int) -> None:
    """Raise FailedPreconditionError if a lost session has left its parts in the middle of a run."""
    if recoveries and parts.changed:
        raw.close()
        raise FailedPreconditionError(
            f"the session was lost, and there is no checkpoint to go on from: its steps change "
            f"{parts} in place, which are now as it has left them; give checkpoint_dir"
        )
    if parts.changed:
        _log.warning(
            "the session begins at step %s with %s as an earlier session has left them: restore a "
            "checkpoint, or make them and the graph anew, if that is not meant",
            *(raw.global_step, parts),
        )
    parts.settle()


def _thread_failure(inner: CoordinatedSession | None) -> BaseException | None:
    """What a thread has failed with; None if none has, or if it found the end of an input."""
    errors = [] if inner is None else errors_of(inner.coord.raise_requested_exception)
    return next((error for error in errors if not isinstance(error, good_ends())), None)
