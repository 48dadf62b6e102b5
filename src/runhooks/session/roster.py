"""``Roster``: the hooks of a monitored session, from ``begin`` to ``end``."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from runhooks.contract import RawSession, SessionRunHook
from runhooks.graph import Graph
from runhooks.session.coordinated import CoordinatedSession
from runhooks.session.hook_names import in_order, named
from runhooks.session.rider import naming
from runhooks.session.session import Session

_log = logging.getLogger("runhooks")


class Roster:
    """Calls what is called of hooks outside of runs, in their order, each error named.

    ``hooks`` ride along in every run; a guest, who joins later, in those that name it.
    """

    def __init__(self, graph: Graph, hooks: Iterable[SessionRunHook] | None) -> None:
        self._graph = graph
        self._hooks = named(in_order(hooks))
        self._begun: dict[str, SessionRunHook] = {}
        self._parts: dict[str, dict[str, _Part]] = {}  # by hook, by the name in checkpoints
        self._compared = False

    def begin(self) -> None:
        """``begin`` of the hooks, in the graph they may add to."""
        for name, hook in self._hooks.items():
            self._begin(name, hook)

    def start(self, session: CoordinatedSession) -> None:
        """Let them all ride along with a session just created, the guests of before too."""
        for name, hook in self._begun.items():
            self._start(name, hook, session, always=name in self._hooks)

    def compare_states(self, raw: Session) -> None:
        """Warn, once, if what was restored and what the hooks keep do not go by the same names."""
        parts = {name: part for parts in self._parts.values() for name, part in parts.items()}
        untaken, new = raw.untaken(), [name for name, part in parts.items() if part.lacks_state]
        if not self._compared and (untaken or new) and any(p.was_given for p in parts.values()):
            self._compared = True
            _log.warning(
                "the checkpoint's states of %s belong to nothing in this program, and %s, which it "
                "has no states of, begin anew: states are found by name; to keep one, give "
                "hook_name to a hook, name to an input, the name that it had",
                untaken or "nobody",
                new or "none",
            )

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
        kept = getattr(hook, "hook_parts", None)
        if kept is not None:
            self._parts[name] = {key: _Part(f"{key} of {name}", kept[key]) for key in kept}
        elif _has_state(hook):
            self._parts[name] = {name: _Part(name, hook)}

    def _start(
        self, name: str, hook: SessionRunHook, session: CoordinatedSession, *, always: bool
    ) -> None:
        asked_before = session.coord.should_stop()
        parts = self._parts.get(name, {})
        try:
            for key, part in parts.items():
                with naming(name, "load_state_dict"):
                    part.join(key, session.raw)
            with naming(name, "after_create_session"):
                hook.after_create_session(session.raw, session.coord)
        except BaseException:
            for key in parts:
                session.raw.detach(key)
            raise
        if session.coord.should_stop() and not asked_before:
            session.stopped_by = name
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
    """A hook, or a part of one, as sessions save it; ``whose`` is it, in words.

    A session that has no state for it gives it back that after begin. States are copied, here and
    there: what it hands out may be what it goes on to change.
    """

    def __init__(self, whose: str, kept: Any) -> None:
        self._whose = whose
        self._kept = kept
        self._is_new = self.was_given = True
        try:
            self._first = copy.deepcopy(dict(kept.state_dict()))
        except Exception:  # noqa: BLE001 - it may need a session to have a state
            self._first = {}

    @property
    def lacks_state(self) -> bool:
        """Whether it has a state from the beginning on, and the session had none for it."""
        return bool(self._first) and not self.was_given

    def join(self, name: str, raw: Session) -> None:
        """Be saved with ``raw``, and take the state that it has or that of the beginning."""
        self.was_given = False
        raw.attach(name, self)
        if self._first and not (self.was_given or self._is_new):
            self._kept.load_state_dict(copy.deepcopy(self._first))
        self._is_new = False

    def state_dict(self) -> Mapping[str, Any]:
        with naming(self._whose, "state_dict"):
            state = self._kept.state_dict()
            if not isinstance(state, Mapping):
                raise TypeError(f"state_dict must return a dict, empty for nothing, got {state!r}")
            return copy.deepcopy(dict(state))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kept.load_state_dict(copy.deepcopy(state))
        self.was_given = True


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
