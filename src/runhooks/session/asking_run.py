"""Runs to be made again with hooks in them: ``AskingRun`` and ``WatchedRun``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runhooks.contract import (
    PreparedRun,
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
)
from runhooks.errors import add_note
from runhooks.graph.base import StepPart
from runhooks.graph.nest import KnownFetches
from runhooks.session.hooks import ScheduledHook, hook_note
from runhooks.session.merge import RequestMerger

NoteStop = Callable[[SessionRunContext, ScheduledHook], None]

#: Makes a named tuple of a tuple, in half the time of its constructor.
_new = tuple.__new__


class AskedRun:
    """A run to come: what its caller wants, and what the hooks that take part have asked for.

    Attributes:
        hooks: Those that may take part.
        caller: What the caller wants.
        step: The global step at which the run begins.
        context: The context of the run.
        part: What the run does to the global step.
        requests: What hooks want.
        answers: What they get, by all hooks that take part.
        postponed: Hooks whose requests wait for a later run, before which they are asked again.
    """

    __slots__ = ("answers", "caller", "context", "hooks", "part", "postponed", "requests", "step")

    def __init__(
        self,
        hooks: list[ScheduledHook],
        caller: SessionRunArgs,
        step: int | None,
        context: SessionRunContext,
        part: StepPart,
    ) -> None:
        self.hooks = hooks
        self.caller = caller
        self.step = step
        self.context = context
        self.part = part
        self.requests: dict[ScheduledHook, SessionRunArgs] = {}
        self.answers: dict[ScheduledHook, Any] = {}
        self.postponed: set[ScheduledHook] = set()

    def take(
        self, hook: ScheduledHook, request: SessionRunArgs | None, merger: RequestMerger
    ) -> None:
        """Let ``hook`` take part, unless its request has to wait for a later run."""
        if request is not None:
            if hook.is_lone:
                merger.check_lone(hook, request)
            if merger.lacks_step(self.caller, hook, request):
                self.postponed.add(hook)
                return
            self.requests[hook] = request
        self.answers[hook] = None

    def recurs(self) -> bool:
        """Return whether the same hooks take part in every run, with nothing but fetches."""
        if self.postponed or self.caller.options is not None:
            return False
        for hook in self.answers:
            if not hook.always:
                return False
        for request in self.requests.values():
            if request.feed_dict is not None or request.options is not None:
                return False  # of an empty one too, which the hook may fill
        return True

    def take_results(self, result: Any) -> Any:
        """Divide the result of the run among the hooks; return that of the caller."""
        if not self.requests:
            return result
        result, *results = result
        for (hook, request), got in zip(self.requests.items(), results, strict=True):
            self.answers[hook] = None if request.fetches is None else got
        return result


class AskingHook:
    """A hook that is called in every run, and what it asked for in one.

    Attributes:
        hook: The hook.
        before_run: Its method.
        request: Whoever returns this very object asks for the same.
    """

    __slots__ = ("_fetches", "_kind", "_leaf", "before_run", "hook", "request")

    def __init__(
        self,
        hook: ScheduledHook,
        before_run: Callable[[SessionRunContext], SessionRunArgs | None],
        request: SessionRunArgs | None,
    ) -> None:
        self.hook = hook
        self.before_run = before_run
        self._kind: type[Any] = type(request)
        fetches = None if request is None else request.fetches
        self._fetches = KnownFetches(fetches)
        # The hook may change what is in its list or dict, or in a request of another class, and
        # return the same request.
        is_leaf = not isinstance(fetches, list | tuple | Mapping)
        is_fixed = is_leaf and (request is None or isinstance(request, tuple))
        self.request = request if is_fixed else self
        self._leaf = fetches if is_leaf else self

    def asks_again(self, request: Any) -> bool:
        """Return whether ``request`` asks for the same, as far as that is quickly said."""
        return (
            type(request) is self._kind
            and (request.fetches is self._leaf or self._fetches.is_the_same_as(request.fetches))
            and request.feed_dict is None
            and request.options is None
        )


class AskingRun(PreparedRun):
    """A run of what its caller and the hooks ask for, in which only hooks of every run take part.

    Args:
        asked: What they have asked for. None of the hooks feeds anything or gives options.
        run: The run of all that. If there are requests its result is a list: that of the caller
            first, then one for each request.

    Attributes:
        run: The same.
        part: What it does to the global step.
        requests: What the hooks have asked for.
        sleepers: Hooks that may say in ``next_due`` that they are no longer called in every run.
    """

    __slots__ = ("_answered", "_asking", "_listening", "part", "requests", "run", "sleepers")

    def __init__(self, asked: AskedRun, run: PreparedRun) -> None:
        self.run = run
        self.part = asked.part
        self.requests = requests = asked.requests
        hooks = [hook for hook in asked.hooks if hook in asked.answers]  # in their order
        self.sleepers = [hook for hook in hooks if hook.sleeps]
        self._asking = [
            AskingHook(hook, hook.before_run, requests.get(hook))
            for hook in hooks
            if hook.before_run is not None
        ]
        self._listening = [hook for hook in hooks if hook.before_run is None]
        places = {
            hook: place
            for place, (hook, request) in enumerate(requests.items(), 1)
            if request.fetches is not None
        }
        self._answered = [
            (hook, hook.after_run, places.get(hook)) for hook in hooks if hook.after_run is not None
        ]
        super().__init__(asked.caller.fetches, run.fed or (), run.steps, run.off_steps)

    @property
    def off_steps(self) -> float:
        """As that of the run itself."""
        return self.run.off_steps

    @off_steps.setter
    def off_steps(self, off_steps: float) -> None:
        self.run.off_steps = off_steps

    def is_fed(self, feed_dict: Any) -> bool:
        return self.run.is_fed(feed_dict)

    def ask(self, context: SessionRunContext, note_stop: NoteStop) -> tuple[list[Any], bool]:
        """Call ``before_run`` of the hooks.

        Returns:
            What they ask for, and whether that is the same as in the run before, as far as that is
            quickly said.
        """
        requests, are_same = [], True
        try:
            for it in self._asking:
                request = it.before_run(context)
                requests.append(request)
                if request is not it.request and not it.asks_again(request):
                    it.hook.check(request)
                    are_same = False
                if context.stop_requested:
                    note_stop(context, it.hook)
        except Exception as error:
            add_note(error, hook_note(it.hook.name, "before_run"))
            raise
        return requests, are_same

    def hand_over(self, requests: list[Any], asked: AskedRun, merger: RequestMerger) -> None:
        """Let the hooks take part in another run with the ``requests`` that ``ask`` returned."""
        for it, request in zip(self._asking, requests, strict=True):
            asked.take(it.hook, request, merger)
        for hook in self._listening:
            asked.take(hook, None, merger)

    def answer(
        self,
        context: SessionRunContext,
        result: Any,
        records: tuple[Any, Any],
        note_stop: NoteStop,
    ) -> None:
        """Call ``after_run`` of the hooks with their parts of ``result``."""
        options, run_metadata = records
        try:
            for hook, after_run, place in self._answered:
                got = None if place is None else result[place]
                after_run(context, _new(SessionRunValues, (got, options, run_metadata)))
                if context.stop_requested:
                    note_stop(context, hook)
        except Exception as error:
            add_note(error, hook_note(hook.name, "after_run"))
            raise

    def go_on(self, runs: int) -> bool:
        """Return whether all hooks go on to be called in every run, ``runs`` having been made."""
        goes_on = True
        for hook in self.sleepers:
            hook.ask_next_due(runs)
            goes_on = goes_on and hook.always
        return goes_on


class WatchedRun(PreparedRun):
    """A run of what its caller asks for, together with what hooks watch.

    Args:
        fetches: What the caller asks for.
        run: The run of both, whose result is a list: that of the caller first.
        raw: The session that makes it.
        watching: The hooks, in the order of the rest of the list.
        stop: Called with the name of a hook that asks to stop.
        turn: Called before the run, and after the hooks: other threads wait in between.
    """

    __slots__ = ("_begin", "_end", "_raw", "_run", "_stop", "_watching")

    def __init__(
        self,
        fetches: Any,
        run: PreparedRun,
        raw: RawSession,
        watching: Sequence[ScheduledHook],
        stop: Callable[[str], None],
        turn: tuple[Callable[[], object], Callable[[], object]],
    ) -> None:
        self._run = run
        self._begin, self._end = turn
        self._raw = raw
        self._watching = watching
        self._stop = stop
        super().__init__(fetches, run.fed or (), run.steps, run.off_steps)

    @property
    def off_steps(self) -> float:
        """As that of the run itself."""
        return self._run.off_steps

    @off_steps.setter
    def off_steps(self, off_steps: float) -> None:
        self._run.off_steps = off_steps

    def is_fed(self, feed_dict: Any) -> bool:
        return self._run.is_fed(feed_dict)

    def again(self, feed_dict: Any) -> Any:
        self._begin()
        try:
            result = self._run.again(feed_dict)
            watch(self._watching, self._raw.global_step, result, self._stop)
        finally:
            self._end()
        return result[0]


def watch(
    watching: Sequence[ScheduledHook],
    step: int | None,
    result: Sequence[Any],
    stop: Callable[[str], None],
) -> None:
    """Hand hooks the values that they watch.

    Args:
        watching: The hooks.
        step: The global step that the run has led to.
        result: The result of the run, with these values behind that of the caller.
        stop: Called with the name of a hook that asks to stop.
    """
    step = step or 0
    place = 0
    try:
        for hook in watching:
            place += 1
            if hook.hook.watch(step, result[place]):
                stop(hook.name)
    except Exception as error:
        add_note(error, hook_note(hook.name, "watch"))
        raise
