"""``MonitoredSession``: a session with hooks, threads watched, and losses repaired.

run -> RecoverableSession -> CoordinatedSession -> HookedSession -> Session
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.errors import OutOfRangeError
from runhooks.graph import Graph, get_default_graph
from runhooks.session.coordinated import CoordinatedSession
from runhooks.session.coordinator import Coordinator
from runhooks.session.creators import ChiefSessionCreator, SessionCreator
from runhooks.session.hook_names import in_order, named
from runhooks.session.hooked import HookedSession
from runhooks.session.interruption import Interruption
from runhooks.session.recoverable import RecoverableSession, RecoveryPolicy
from runhooks.session.rider import naming
from runhooks.session.session import Session
from runhooks.session.step_context import StepContext, check_step_fn

_GOOD_ENDS = (OutOfRangeError, StopIteration)


class MonitoredSession:
    """Runs a graph with hooks, as ``tf.compat.v1.train.MonitoredSession`` does.

    It calls the hooks (``runhooks.contract.life_cycle`` says when), saves nothing by itself, and
    when the session is lost it creates a new one and repeats the run, as ``recovery`` allows. As a
    context manager it ends well at ``OutOfRangeError`` and ``StopIteration``, which it swallows.
    In the main thread, SIGTERM and the first Ctrl-C make ``should_stop()`` true, so that the loop
    ends well after the running step; a second Ctrl-C interrupts it.

    ``session_creator``: a ``ChiefSessionCreator()`` if None. ``hooks``: called in this order,
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
        self._graph = get_default_graph()
        self._creator = session_creator or ChiefSessionCreator()
        self._grace_secs = stop_grace_period_secs
        self._hooks = named(in_order(hooks))
        self._guests: dict[str, SessionRunHook] = {}
        self._stop_reason: str | None = None
        self._session: RecoverableSession | None = None
        self._interruption = Interruption(self._interrupt)
        self._recoveries = 0
        self._was_finalized = self._graph.finalized
        is_lost = self._graph.engine.is_lost
        try:
            for name, hook in self._hooks.items():
                self._begin(name, hook)
            self._session = RecoverableSession(self._create, is_lost, recovery or RecoveryPolicy())
        except BaseException as error:
            self._tell_failure(None, error)
            self._restore_graph()
            raise
        self._interruption.__enter__()

    @property
    def graph(self) -> Graph:
        """The graph it runs."""
        return self._graph

    @property
    def global_step(self) -> int | None:
        """The global step, known without a run; None if the graph has none, or after ``close``."""
        raw = self._raw()
        return None if raw is None else raw.global_step

    @property
    def stop_reason(self) -> str | None:
        """Why it stops: the hook or signal that asked for it, or the words of ``request_stop``."""
        inner = None if self._session is None else self._session.session
        return self._stop_reason or (None if inner is None else inner.stop_reason)

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
        session joins it for runs that name it. Raises RuntimeError after ``close`` and after a
        stop was asked for, and what the run, a hook or a thread raises.
        """
        session = self._session
        if session is None or self._stop_reason is not None:
            raise RuntimeError(self._why_not())
        if hooks is None or hooks is True:
            return session.run(fetches, feed_dict, options, run_metadata)
        chosen = [] if hooks is False else in_order(hooks)
        for hook in chosen:
            self._join(hook)
        return session.run(fetches, feed_dict, options, run_metadata, chosen)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call ``step_fn(step_context)`` and return what it returns.

        It may run the raw ``step_context.session`` and ``step_context.run_with_hooks``. Raises
        TypeError or ValueError if it is no such function, and what it raises.
        """
        check_step_fn(step_fn)
        if self._session is None:
            raise RuntimeError(self._why_not())
        return self._session.call(lambda inner: step_fn(StepContext(inner.raw, inner.run)))

    def should_stop(self) -> bool:
        """Whether the loop is to end. Raises what a thread under the coordinator failed with."""
        if self._session is None or self._stop_reason is not None:
            return True
        return self._session.should_stop()

    def request_stop(self, reason: str = "request_stop was called") -> None:
        """Make ``should_stop()`` true."""
        self._stop_reason = self._stop_reason or reason

    def close(self) -> None:
        """End well: ``end`` of every hook, then the threads, then the session.

        May be called again. Everything is ended in any case; the first error is raised, with notes
        on the others.
        """
        self._close(None)

    def __enter__(self) -> MonitoredSession:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(exc, _GOOD_ENDS):
            self.request_stop(str(exc) or type(exc).__name__)
            exc = None
        self._close(exc)
        return exc is None

    def _why_not(self) -> str:
        if self._session is None:
            return "run was called on a closed session: create a new one"
        return (
            f"run was called after a stop was asked for ({self._stop_reason}): "
            "test should_stop() before each run"
        )

    def _raw(self) -> Session | None:
        inner = None if self._session is None else self._session.session
        return None if inner is None else inner.raw

    def _create(self) -> CoordinatedSession:
        with self._graph.as_default():
            raw = self._creator.create_session()
        self._graph.finalize()
        coord = Coordinator(clean_stop_exception_types=())
        hooked = HookedSession(raw)
        session = CoordinatedSession(raw, hooked, coord, self._grace_secs)
        try:
            for name, hook in {**self._hooks, **self._guests}.items():
                _start(name, hook, session, always=name in self._hooks)
        except BaseException:
            session.close()
            raise
        return session

    def _begin(self, name: str, hook: SessionRunHook) -> None:
        with self._graph.as_default(), naming(name, "begin"):
            hook.begin()

    def _join(self, hook: SessionRunHook) -> None:
        known = [*self._hooks.values(), *self._guests.values()]
        if any(hook is other for other in known):
            return
        name = list(named([*known, hook]))[-1]
        self._begin(name, hook)
        inner = None if self._session is None else self._session.session
        if inner is not None:
            _start(name, hook, inner, always=False)
        self._guests[name] = hook

    def _interrupt(self, number: int) -> None:
        self.request_stop(signal.Signals(number).name)

    def _close(self, error: BaseException | None) -> None:
        if self._session is None:
            return
        self._stop_reason = self.stop_reason or (
            "close was called" if error is None else repr(error)
        )
        raw, failures = self._raw(), []
        try:
            if error is not None:
                self._tell_failure(raw, error)
            elif raw is not None:
                for name, hook in {**self._hooks, **self._guests}.items():
                    failures += _failure(partial(_end, name, hook, raw))
        finally:
            failures += _failure(self._session.close)
            self._recoveries = self._session.recoveries
            self._session = None
            self._interruption.__exit__(None, None, None)
            self._restore_graph()
        if error is not None:
            failures.insert(0, error)
        for failure in failures[1:]:
            failures[0].add_note(f"closing the session then raised {failure!r}")
        if failures and error is None:
            raise failures[0]

    def _restore_graph(self) -> None:
        # As in TensorFlow, so that another session of this graph can begin its hooks.
        if not self._was_finalized:
            self._graph.unfinalize()

    def _tell_failure(self, raw: Session | None, error: BaseException) -> None:
        for name, hook in {**self._hooks, **self._guests}.items():
            on_exception = getattr(hook, "on_exception", None)
            for failure in _failure(partial(on_exception, raw, error)) if on_exception else ():
                error.add_note(f"on_exception of the hook {name} then raised {failure!r}")


def _start(name: str, hook: SessionRunHook, session: CoordinatedSession, *, always: bool) -> None:
    state_dict = getattr(hook, "state_dict", None)
    if callable(state_dict) and callable(getattr(hook, "load_state_dict", None)):
        with naming(name, "load_state_dict"):
            session.raw.attach(name, hook)
    with naming(name, "after_create_session"):
        hook.after_create_session(session.raw, session.coord)
    session.hooked.add(name, hook, always=always)


def _end(name: str, hook: SessionRunHook, raw: Session) -> None:
    with naming(name, "end"):
        hook.end(raw)


def _failure(act: Callable[[], Any]) -> list[BaseException]:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - raised once everything is closed
        return [error]
    return []
