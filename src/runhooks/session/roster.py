"""``Roster``: the hooks of a monitored session, from ``begin`` to ``end``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from runhooks.contract import RawSession, SessionRunHook
from runhooks.graph import Graph
from runhooks.session.coordinated import CoordinatedSession
from runhooks.session.hook_names import in_order, named
from runhooks.session.rider import naming
from runhooks.session.session import Session


class Roster:
    """Calls what is called of hooks outside of runs, in their order, each error named.

    ``hooks`` ride along in every run; a guest, who joins later, in those that name it.
    """

    def __init__(self, graph: Graph, hooks: Iterable[SessionRunHook] | None) -> None:
        self._graph = graph
        self._hooks = named(in_order(hooks))
        self._begun: dict[str, SessionRunHook] = {}
        self._parts: dict[str, _Part] = {}

    def begin(self) -> None:
        """``begin`` of the hooks, in the graph they may add to."""
        for name, hook in self._hooks.items():
            self._begin(name, hook)

    def start(self, session: CoordinatedSession) -> None:
        """Let them all ride along with a session just created, the guests of before too."""
        for name, hook in self._begun.items():
            self._start(name, hook, session, always=name in self._hooks)

    def chosen(
        self, hooks: Iterable[SessionRunHook] | bool | None, session: CoordinatedSession | None
    ) -> list[SessionRunHook] | None:
        """Those that ``run`` was given; who is new joins ``session``. None: all but the guests."""
        if hooks is None or hooks is True:
            return None
        chosen = [] if hooks is False else in_order(hooks)
        for hook in chosen:
            if not any(hook is known for known in self._begun.values()):
                self._join(hook, session)
        return chosen

    def end(self, raw: RawSession) -> list[BaseException]:
        """``end`` of each, whatever another raises; returns what they raise."""
        return [
            error
            for name, hook in self._begun.items()
            for error in errors_of(partial(_end, name, hook, raw))
        ]

    def tell_failure(self, raw: RawSession | None, error: BaseException) -> None:
        """``on_exception`` of each that has it; what it raises is noted on ``error``."""
        for name, hook in self._begun.items():
            on_exception = getattr(hook, "on_exception", None)
            for failure in errors_of(partial(on_exception, raw, error)) if on_exception else ():
                error.add_note(f"on_exception of the hook {name} then raised {failure!r}")

    def _begin(self, name: str, hook: SessionRunHook) -> None:
        with self._graph.as_default(), naming(name, "begin"):
            hook.begin()
        self._begun[name] = hook
        if _has_state(hook):
            self._parts[name] = _Part(hook)

    def _start(
        self, name: str, hook: SessionRunHook, session: CoordinatedSession, *, always: bool
    ) -> None:
        part = self._parts.get(name)
        if part is not None:
            with naming(name, "load_state_dict"):
                part.join(name, session.raw)
        try:
            with naming(name, "after_create_session"):
                hook.after_create_session(session.raw, session.coord)
        except BaseException:
            session.raw.detach(name)
            raise
        session.hooked.add(name, hook, always=always)

    def _join(self, hook: SessionRunHook, session: CoordinatedSession | None) -> None:
        name = list(named([*self._begun.values(), hook]))[-1]
        self._begin(name, hook)
        try:
            if session is not None:
                self._start(name, hook, session, always=False)
        except BaseException:
            del self._begun[name]
            self._parts.pop(name, None)
            raise


class _Part:
    """A hook as sessions save it. One that has no state for it gives it back that after begin."""

    def __init__(self, hook: SessionRunHook) -> None:
        self._hook = hook
        self._is_new = self._was_given = True
        try:
            self._first = copy.deepcopy(dict(hook.state_dict()))
        except Exception:  # noqa: BLE001 - it may need a session to have a state
            self._first = {}

    def join(self, name: str, raw: Session) -> None:
        """Be saved with ``raw``, and take the state that it has or that of the beginning."""
        self._was_given = False
        raw.attach(name, self)
        if self._first and not (self._was_given or self._is_new):
            self._hook.load_state_dict(copy.deepcopy(self._first))
        self._is_new = False

    def state_dict(self) -> Mapping[str, Any]:
        return self._hook.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._hook.load_state_dict(state)
        self._was_given = True


def errors_of(act: Callable[[], Any]) -> list[BaseException]:
    """Call ``act`` and return the error it raises, in a list; empty if none."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whoever asks raises it when all is done
        return [error]
    return []


def _has_state(hook: SessionRunHook) -> bool:
    methods = ("state_dict", "load_state_dict")  # which a hook of another library may lack
    return all(callable(getattr(hook, method, None)) for method in methods)


def _end(name: str, hook: SessionRunHook, raw: RawSession) -> None:
    with naming(name, "end"):
        hook.end(raw)
