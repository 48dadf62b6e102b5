"""``HookList``: the hooks of a loop, from ``begin`` to ``end``; ``NestedLoop``: one inside."""

from __future__ import annotations

import copy
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any

from runhooks.arrays.trees import as_dict
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook
from runhooks.errors import add_note, described, error_text, good_ends
from runhooks.events import flush_all
from runhooks.graph.base import OBJECT_STATES
from runhooks.session.hooked import LiveSession
from runhooks.session.scheduled_hook import RankPlacement, class_says, noting_hook
from runhooks.session.states import INPUT_STATES
from runhooks.summary.file_writer import SessionFiles

FeedDict = Mapping[Any, Any] | None

_log = logging.getLogger("runhooks")
_METHODS = ("begin", "after_create_session", "before_run", "after_run", "end")


def in_order(hooks: Iterable[Any] | None) -> list[SessionRunHook]:
    """Return the hooks as given, but ``first`` ones first, and ``last`` ones last."""
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of SessionRunHooks, got {hooks!r}")
    given = list(hooks or ())
    for hook in given:
        what = ""
        if isinstance(hook, type):
            what = "a class: create it first"
        elif lacking := [name for name in _METHODS if not callable(getattr(hook, name, None))]:
            what = f"without {lacking}"
        elif not all(isinstance(class_says(hook, it), bool) for it in ("first", "last")):
            what = "whose first or last is not a bool: in tests use runhooks.testing.RecordingHook"
        if what:
            raise TypeError(f"hooks must be SessionRunHooks, got {hook!r}, {what}")
        if getattr(hook, "runs_on", "all") not in ("all", "chief"):
            raise ValueError(f"runs_on must be 'all' or 'chief', got {hook.runs_on!r} of {hook!r}")
    return sorted(given, key=lambda it: class_says(it, "last") - class_says(it, "first"))


def _warn_of_misspelled(kind: type) -> None:
    own = [it for it in vars(kind) if it[0] != "_" and it not in dir(SessionRunHook)]
    for name in filter(lambda it: callable(getattr(kind, it)), own):
        import difflib  # slow

        if near := difflib.get_close_matches(name, _METHODS, 1, cutoff=0.85):
            _log.warning(
                "%s.%s is no method of a hook, and is never called: did you mean %s?",
                *(kind.__name__, name, near[0]),
            )


class HookList:
    """Calls hooks outside of runs, in their order, and names each hook in its errors."""

    def __init__(self, hooks: Iterable[SessionRunHook] | None, *, is_nested: bool = False) -> None:
        self._kinds: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        #: Those that take part in every run, in order.
        self.by_name: Mapping[str, SessionRunHook] = {
            self._name(hook): hook for hook in in_order(hooks)
        }
        self._is_nested = is_nested
        self._begun: dict[str, SessionRunHook] = {}
        self._begun_ids: set[int] = set()
        self._saved: dict[str, dict[str, _SavedObject]] = {}  # by hook, by name in checkpoints
        self._compared = False
        self._placement: RankPlacement | None = None
        self._files = SessionFiles()

    def place(self, placement: RankPlacement) -> None:
        self._placement = placement
        self.by_name = {name: it for name, it in self.by_name.items() if placement.is_here(it)}

    def begin(self) -> None:
        if not self._is_nested:
            self._files.begin()
        for name, hook in self.by_name.items():
            self._begin(name, hook)

    def start(self, session: LiveSession) -> None:
        was_asked = session.coord.should_stop()
        if not self._is_nested:
            self._files.start(session.raw, self._begun.values())
        # All first: a hook may use the state of another.
        for name, hook in self._in_order():
            self._restore(name, hook, session)
        for name, hook in self._in_order():
            self._start(name, hook, session, always=name in self.by_name)
            if not was_asked and session.stopped_by is None and session.coord.should_stop():
                why = session.coord.given_reason
                session.stopped_by = f"{name} ({why})" if why else name
                if session.coord.stopped_in is threading.current_thread():  # by the hook itself
                    session.hooked.stop_reason = session.stopped_by
        session.hooked.schedule()

    def join(self, hooks: Iterable[SessionRunHook], session: LiveSession) -> list[SessionRunHook]:
        """Begin those of ``hooks`` that are new; return all."""
        given = in_order(hooks)
        for hook in given:
            if id(hook) not in self._begun_ids:
                self._join(hook, session)
        return given

    def end(self, raw: RawSession) -> list[BaseException]:
        errors = []
        for name, hook in self._in_order():
            errors += caught(partial(self._end, name, hook, raw))
        self._files.end()
        return errors

    def on_exception(self, raw: RawSession | None, error: BaseException) -> None:
        for name, hook in self._in_order():
            on_exception = getattr(hook, "on_exception", None)  # a foreign hook may lack it
            for failure in caught(partial(on_exception, raw, error)) if on_exception else ():
                add_note(error, f"on_exception of the hook {name} then raised {described(failure)}")
        self._files.end()
        # Else lost events would raise in the next session.
        for failure in caught(partial(flush_all, timeout=5.0)):
            add_note(error, f"writing events then failed: {error_text(failure)}")

    def compare_states(self, raw: RawSession) -> None:
        saved = {name: it for by_name in self._saved.values() for name, it in by_name.items()}
        if self._compared or not any(it.was_given for it in saved.values()):
            return
        unclaimed = raw.unclaimed_states()
        for there, here in self._renumbered(unclaimed):
            self._compared = True
            _log.warning(
                "the checkpoint has the states of %s, and the hooks here are %s. Hooks of one name "
                "are numbered in order, so each may have got the state of another: give new ones a "
                "hook_name of their own, and others the one they had",
                *(", ".join(there), ", ".join(here)),
            )
        findings = []
        if unknown := [name for name, state in unclaimed.items() if state]:
            findings.append(f"states that belong to nothing here ({', '.join(unknown)})")
        if new := [name for name, it in saved.items() if it.lacks_state]:
            findings.append(f"no states for {', '.join(new)}, which start over")
        if findings:
            self._compared = True
            _log.warning(
                "the checkpoint has %s. States are found by name: to keep one, give a hook "
                "(hook_name) or an input (name) the name that it had. Later checkpoints lack what "
                "belongs to nothing",
                " and ".join(findings),
            )

    def _renumbered(self, unclaimed: Iterable[str]) -> Iterator[tuple[list[str], list[str]]]:
        """Yield names of a kind in the checkpoint, and those here, if they differ."""
        by_kind: dict[str, dict[str, _SavedObject]] = {}
        for name, saved in self._saved.items():
            if name in saved:
                by_kind.setdefault(self._kinds[name], {})[name] = saved[name]
        for kind, hooks in by_kind.items():
            found = [name for name, it in hooks.items() if it.was_given]
            gone = [it for it in unclaimed if re.fullmatch(rf"{re.escape(kind)}(_\d+)?", it)]
            if found and found + gone != list(hooks):
                yield found + gone, list(hooks)

    def _name(self, hook: SessionRunHook) -> str:
        own = getattr(hook, "hook_name", None)
        if isinstance(own, str) and own.startswith((INPUT_STATES, OBJECT_STATES)):
            raise ValueError(
                f"hook_name must not begin with {INPUT_STATES!r} or {OBJECT_STATES!r}, which "
                f"checkpoints use for inputs and objects: got {own!r}"
            )
        _warn_of_misspelled(type(hook))
        kind = own if isinstance(own, str) and own else type(hook).__name__
        for number in count(self._numbers.get(kind, 0)):
            name = f"{kind}_{number}" if number else kind
            if name not in self._kinds:
                break
        self._numbers[kind] = number
        self._kinds[name] = kind
        return name

    def _begin(self, name: str, hook: SessionRunHook) -> None:
        is_given = not getattr(hook, "is_of_the_session", False)
        with noting_hook(name, "begin") if is_given else nullcontext(), self._time_of(hook):
            hook.begin()
        self._begun[name] = hook
        self._begun_ids.add(id(hook))
        if self._is_nested:
            return
        for attribute, kind in (("hook_secs", dict), ("saved_objects", Mapping)):
            value = getattr(hook, attribute, None)  # a foreign hook may lack it
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"{attribute} of the hook {name}, which runhooks reads, must be a dict or "
                    f"None, got {value!r}: if it is your own, give it another name"
                )
        objects = getattr(hook, "saved_objects", None)
        if objects is not None:
            self._saved[name] = {
                key: _SavedObject(f"{key} of {name}", it) for key, it in objects.items()
            }
        elif _has_state(hook):
            self._saved[name] = {name: _SavedObject(name, hook)}

    def _end(self, name: str, hook: SessionRunHook, raw: RawSession) -> None:
        with noting_hook(name, "end"), self._time_of(hook):
            hook.end(raw)

    def _in_order(self) -> list[tuple[str, SessionRunHook]]:
        return sorted(self._begun.items(), key=lambda it: class_says(it[1], "last"))

    def _restore(self, name: str, hook: SessionRunHook, session: LiveSession) -> None:
        SessionFiles.note_held(hook)
        with self._handing(name, "load_state_dict", hook, session):
            for key, it in self._saved.get(name, {}).items():
                it.attach_to(session.raw, key)

    def _start(
        self, name: str, hook: SessionRunHook, session: LiveSession, *, always: bool
    ) -> None:
        with self._handing(name, "after_create_session", hook, session):
            hook.after_create_session(session.raw, session.coord)
        session.hooked.add(name, hook, self._placement, always=always)

    @contextmanager
    def _handing(
        self, name: str, phase: str, hook: SessionRunHook, session: LiveSession
    ) -> Iterator[None]:
        """The state of a hook that raises is not saved."""
        try:
            with noting_hook(name, phase), self._time_of(hook):
                yield
        except BaseException:
            for key in self._saved.get(name, {}):
                session.raw.detach(key)
            raise

    def _time_of(self, hook: SessionRunHook) -> AbstractContextManager[None]:
        return nullcontext() if self._placement is None else self._placement.time_of(hook)

    def _join(self, hook: SessionRunHook, session: LiveSession) -> None:
        name = self._name(hook)
        try:
            self._begin(name, hook)
            self._restore(name, hook, session)
            self._start(name, hook, session, always=False)
        except BaseException:
            self._kinds.pop(name, None)
            self._numbers.clear()
            self._begun.pop(name, None)
            self._begun_ids.discard(id(hook))
            self._saved.pop(name, None)
            raise


class _SavedObject:
    """A hook, or an object that it keeps in checkpoints.

    After a recovery from a checkpoint without its state, it gets the one it had after ``begin``.
    States are copied: the object may change them.
    """

    def __init__(self, description: str, saved: Any) -> None:
        self._description = description
        self._saved = saved
        self._had_no_session = True
        self.was_given = True
        self._after_begin = self._present()

    @property
    def lacks_state(self) -> bool:
        return bool(self._after_begin) and not self.was_given

    def attach_to(self, raw: RawSession, name: str) -> None:
        self.was_given = False
        raw.attach(name, self)
        is_recovery = not (self.was_given or self._had_no_session)
        if is_recovery and self._after_begin is not None:
            self._load(self._after_begin)
        self._had_no_session = False

    def state_dict(self) -> Mapping[str, Any]:
        with noting_hook(self._description, "state_dict"):
            state = self._saved.state_dict()
            if not isinstance(state, Mapping):
                raise TypeError(f"state_dict must return a dict, empty for nothing, got {state!r}")
            return copy.deepcopy(as_dict(state))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._load(state)
        self.was_given = True

    def _load(self, state: Mapping[str, Any]) -> None:
        """Load an empty ``state``, which many objects cannot, only to clear something."""
        if not state and self._present() == {}:
            return
        try:
            self._saved.load_state_dict(copy.deepcopy(state))
        except KeyError:
            if state:
                raise
            _log.warning(
                "%s keeps its present state: its load_state_dict does not take the empty one of "
                "the checkpoint",
                self._description,
            )

    def _present(self) -> dict[str, Any] | None:
        try:
            return copy.deepcopy(as_dict(self._saved.state_dict()))
        except Exception:  # noqa: BLE001 - it may need a session to have a state
            return None


def caught(act: Callable[[], Any]) -> list[BaseException]:
    """Return a list of the error that ``act`` raises, even KeyboardInterrupt, or []."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001
        return [error]
    return []


def raise_first(errors: Sequence[BaseException], already: BaseException | None = None) -> None:
    """Raise the first of ``errors``, with notes on the others; nothing if it is ``already`` raised.

    One that is not an Exception comes first: ``except ValueError`` must not swallow a Ctrl-C.
    """
    if not errors:
        return
    first = next((it for it in errors if not isinstance(it, Exception)), errors[0])
    for other in errors:
        if other is not first:
            add_note(first, f"closing the session also raised {described(other)}")
    if first is not already:
        raise first


def _has_state(hook: SessionRunHook) -> bool:
    methods = ("state_dict", "load_state_dict")  # a foreign hook may lack them
    if not all(callable(getattr(hook, method, None)) for method in methods):
        return False
    return getattr(hook.state_dict, "__func__", None) is not SessionRunHook.state_dict


class LoopStoppedError(Exception):
    """The training was asked to stop in a nested loop."""


def until_stop(
    training: RawSession, feeds: Iterable[FeedDict], *, is_at_end: bool
) -> Iterator[FeedDict]:
    """Yield ``feeds`` of a nested loop until the session of the training is asked to stop.

    Raises LoopStoppedError at a request after the first of ``feeds`` or, unless the training is at
    its end, at a signal before it: it is to be saved before it is killed.
    """
    stop = training.stop_request
    already = stop.reason if is_at_end or not stop.is_by_signal else None
    for feed_dict in feeds:
        if stop.reason != already:
            raise LoopStoppedError(stop.reason)
        yield feed_dict


class NestedLoop:
    """Loops with hooks of its own, whose states are in no checkpoint."""

    def __init__(self, hooks: Iterable[SessionRunHook] | None) -> None:
        self._hooks = HookList(hooks, is_nested=True)

    def begin(self) -> None:
        self._hooks.begin()

    def run(
        self,
        raw: RawSession,
        fetches: Iterable[Any],
        feeds: Iterable[FeedDict],
        take: Callable[[Any], object],
    ) -> int:
        """Make, and count, runs until ``feeds`` or an input end, or a hook asks to stop."""
        session = LiveSession(raw)
        hooked, coord, runs = session.hooked, session.coord, 0
        try:
            self._hooks.start(session)
            try:
                runs_to_make = map(SessionRunArgs, fetches, feeds)
                while hooked.stop_reason is None and not coord.should_stop():
                    take(hooked.run_with_hooks(next(runs_to_make)))
                    runs += 1
            except good_ends():
                pass
            coord.raise_requested_exception()
        except BaseException as error:
            coord.request_stop()
            self._hooks.on_exception(raw, error)
            raise
        errors = self._hooks.end(raw)
        coord.request_stop()
        raise_first([*errors, *caught(partial(coord.join, ignore_live_threads=True))])
        return runs
