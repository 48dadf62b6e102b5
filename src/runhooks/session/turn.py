"""``Turn``: one run with the hooks that take part in it, made again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from runhooks.contract import (
    PreparedRun,
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
)
from runhooks.engines import foreign
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.base import BaseGraph, StepPart
from runhooks.graph.engine import BoundedCache
from runhooks.graph.nest import FetchList, KnownFetches, structure_key
from runhooks.graph.nodes import Tensor
from runhooks.graph.plan import CALLER
from runhooks.session.scheduled_hook import ScheduledHook, note_hook

_log = logging.getLogger("runhooks")

Hooks = tuple[ScheduledHook, ...]
Request = SessionRunArgs | None
Answering = tuple[ScheduledHook, Callable[..., Any], int | None]
Requests = Mapping[ScheduledHook, SessionRunArgs]

_NEVER_ASKED = SessionRunArgs(object())

#: Takes half the time of the constructor of a named tuple.
new_tuple = tuple.__new__


class Asking:
    """A hook, and what it asked for; to return ``request`` itself asks for the same."""

    __slots__ = ("_fetches", "_kind", "_leaf", "before_run", "hook", "request")

    def __init__(self, hook: ScheduledHook, request: Any = _NEVER_ASKED) -> None:
        assert hook.before_run is not None, "only a hook that overrides it is asked"
        self.hook = hook
        self.before_run = hook.before_run
        self._kind: type[Any] = type(request)
        fetches = None if request is None else request.fetches
        self._fetches = KnownFetches(fetches)
        is_leaf = not isinstance(fetches, list | tuple | Mapping)
        self._leaf = fetches if is_leaf else self
        # The hook may change what a list, dict or other class holds, and return it again.
        is_fixed = is_leaf and isinstance(request, tuple) and not _has_feeds(request)
        self.request = request if is_fixed or request is None else self

    def asks_again(self, request: Any) -> bool:
        """May return False where ``request`` asks for the same."""
        return (
            type(request) is self._kind
            and (request.fetches is self._leaf or self._fetches.is_the_same_as(request.fetches))
            and request.feed_dict is None  # as _has_feeds, without the call
            and request.options is None
        )


class CallerTurns:
    """Turns of callers that ask for the same fetches, with the same keys of a feed_dict.

    Attributes:
        part: What such a run does to the global step.
        draws: How many elements it takes of the data that epochs are counted by.
    """

    def __init__(
        self, caller: SessionRunArgs, watching: Sequence[ScheduledHook], merger: RequestMerger
    ) -> None:
        self.part, self.draws = merger.effects(caller)
        self.watching = watching
        self.merger = merger
        self._turns: BoundedCache[Any, Turn] = BoundedCache()
        self.last: BoundedCache[Hooks, Turn] = BoundedCache()

    def turn(self, hooks: Hooks, caller: SessionRunArgs, requests: Sequence[Request]) -> Turn:
        key = hooks, *map(_key, requests)
        turn = self._turns.get_or_make(key, lambda: Turn(self, hooks, caller, requests))
        self.last[hooks] = turn
        return turn


class Turn:
    """A run with ``hooks``, for all callers that ask for the same; without, it is an off-step.

    Attributes:
        parties: Hooks whose requests are answered, each by one item of the result.
        waiting: Those that wait for a run that makes a step.
        fetches: What is run: a list, the caller's part first; None: only what the caller asks for.
        feeds: Whether hooks feed values or give options, to be merged for each run.
        answering: Hooks, their methods, and the places of their values in the result, if any.
        sleepers: Hooks that sleep, and are not ``waiting``.
        run: The run that it made last, if it can be made again.
    """

    __slots__ = (
        *("answering", "asking", "feeds", "fetches", "hooks", "is_of", "leaf", "parties", "run"),
        *("sleepers", "turns", "waiting", "watching"),
    )

    def __init__(
        self, turns: CallerTurns, hooks: Hooks, caller: SessionRunArgs, requests: Sequence[Request]
    ) -> None:
        self.turns, self.hooks = turns, hooks
        known = KnownFetches(caller.fetches)
        self.leaf, self.is_of = known.leaf, known.is_the_same_as
        asked = [hook for hook in hooks if hook.before_run is not None]
        self.asking = [Asking(*it) for it in zip(asked, requests, strict=True)]
        self.run: PreparedRun | None = None
        wanted = dict(zip(asked, requests, strict=True))
        if not hooks:
            wanted |= {hook: SessionRunArgs(hook.watched) for hook in turns.watching}
        answered: dict[ScheduledHook, SessionRunArgs] = {}
        self.waiting: set[ScheduledHook] = set()
        for hook, request in wanted.items():
            if request is not None and turns.merger.lacks_step(caller, hook, request):
                self.waiting.add(hook)
            elif request is not None:
                answered[hook] = request
        self.parties = list(answered)
        self.watching = [] if hooks else self.parties
        places = {
            hook: place
            for place, (hook, request) in enumerate(answered.items(), 1)
            if request.fetches is not None
        }
        self.answering = [
            (hook, hook.after_run, places.get(hook))
            for hook in hooks
            if hook.after_run is not None and hook not in self.waiting
        ]
        self.sleepers = [hook for hook in hooks if hook.sleeps and hook not in self.waiting]
        self.feeds = any(map(_has_feeds, answered.values()))
        named = [(f"the hook {hook.name}", _wanted(it)) for hook, it in answered.items()]
        self.fetches = FetchList([(CALLER, caller.fetches), *named]) if named else None

    def requests_of(self, requests: Sequence[Request]) -> dict[ScheduledHook, SessionRunArgs]:
        """Return what hooks ask for beside the caller; ``requests``: of those that were asked."""
        given = {it.hook: request for it, request in zip(self.asking, requests, strict=True)}
        given |= {hook: SessionRunArgs(hook.watched) for hook in self.watching}
        return {hook: request for hook in self.parties if (request := given[hook]) is not None}

    def recurs(self) -> bool:
        """Return whether its hooks let it be the next run, too."""
        return not (self.feeds or self.waiting) and all(hook.always for hook in self.hooks)

    def watch(self, step: int, result: Any, stop: Callable[[str], None]) -> None:
        try:
            for place, hook in enumerate(self.watching, 1):
                if hook.hook.watch(step, result[place]):
                    stop(hook.name)
        except Exception as error:
            note_hook(error, hook.name, "watch")
            raise


def answer(
    answering: Sequence[Answering],
    context: SessionRunContext,
    result: Any,
    records: tuple[Any, Any],
    note_stop: Callable[[SessionRunContext, ScheduledHook], None],
) -> None:
    """Call ``after_run``; ``records``: the options and metadata of the run."""
    options, metadata = records
    try:
        for hook, after_run, place in answering:
            values = None if place is None else result[place]
            after_run(context, new_tuple(SessionRunValues, (values, options, metadata)))
            if context.stop_requested:
                note_stop(context, hook)
    except Exception as error:
        note_hook(error, hook.name, "after_run")
        raise


class RequestMerger:
    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self._graph = foreign.graph_of(raw.graph)
        self._warned = False

    def effects(self, caller: SessionRunArgs) -> tuple[StepPart, int]:
        """Return ``part`` and ``draws`` of ``CallerTurns``."""
        asked_for = caller.fetches, tuple(caller.feed_dict or ())
        part, draws, epochs = StepPart.WHOLE, 0, self._raw.epochs
        with suppress(TypeError, ValueError, KeyError):  # the run will say what is wrong
            part = self._raw.step_part(*asked_for)
            if epochs is not None and epochs.input is not None:
                draws = int(epochs.input in self._raw.inputs_of(*asked_for))
        return part, draws

    def _check_lone(self, hook: ScheduledHook, request: SessionRunArgs) -> None:
        effects = self._graph.effects_of(request.fetches, request.feed_dict or ())
        names = [op.name for op in effects.gathers]
        if (objects := self._graph.objects) is not None:
            touched = effects.reads | effects.captures
            names += [op.name for op in touched if objects.is_spread(op.name)]
        if names:
            raise RuntimeError(
                f"the hook {hook.name} asks for {min(names)!r} on one rank, but each holds a part "
                "of it: let all ranks call it, in hooks and not in chief_only_hooks, with "
                "hook.runs_on = 'all', or set asks_on_all = True in its class if it only writes"
            )

    def lacks_step(
        self, caller: SessionRunArgs, hook: ScheduledHook, request: SessionRunArgs
    ) -> bool:
        """Return whether ``hook`` has to wait; raise RuntimeError if it cannot ask alone."""
        if request.fetches is None:
            return False
        if hook.is_lone:
            self._check_lone(hook, request)
        if self._graph.objects is None:
            return False
        feeds = (*(caller.feed_dict or ()), *(request.feed_dict or ()))
        try:
            made = self._graph.effects_of(caller.fetches, feeds).steps
            needs = self._graph.effects_of(request.fetches, feeds)
        except (TypeError, ValueError):  # the run will say what is wrong
            return False
        missing = needs.steps - made
        if missing and missing < needs.steps and not self._warned:
            self._warned = True
            _log.warning(
                "the hook %s waits for a run that makes all of the steps %s, whose outputs it asks "
                "for: fetch these together, as in session.run(%s)",
                *(hook.name, *2 * [sorted(op.name for op in needs.steps)]),
            )
        return bool(missing) or bool(needs.step_captures and not made)

    def merged(self, caller: SessionRunArgs, requests: Requests) -> tuple[Any, Any]:
        parties = {CALLER: caller, **{hook.name: it for hook, it in requests.items()}}
        given = {name: args.options for name, args in parties.items() if args.options is not None}
        options = self._raw.merge_options(given) if given else None
        feeding = {name: args.feed_dict for name, args in parties.items() if args.feed_dict}
        if len(feeding) < 2:
            return next((dict(feed_dict) for feed_dict in feeding.values()), None), options
        merged: dict[Any, Any] = {}
        fed_by: dict[Any, str] = {}
        for party, feed_dict in feeding.items():
            merged |= feed_dict
            for tensor in chain.from_iterable(map(self._graph.elements_fed, feed_dict)):
                if tensor in fed_by:
                    raise RuntimeError(
                        f"Same tensor is fed twice: {tensor.name!r} is fed by {fed_by[tensor]} and "
                        f"by {party}; only one of them may feed it"
                    )
                fed_by[tensor] = party
        return merged, options

    def note_bad_requests(
        self, error: Exception, caller: SessionRunArgs, requests: Requests
    ) -> None:
        fed = {key for args in (caller, *requests.values()) for key in args.feed_dict or ()}
        if not _is_sound(self._graph, caller.fetches, caller.feed_dict or (), fed):
            return
        for hook, request in requests.items():
            if not _is_sound(self._graph, _wanted(request), request.feed_dict or (), fed):
                add_note(error, f"in before_run of the hook {hook.name}, which asks for it")


def _wanted(request: SessionRunArgs) -> Any:
    return [] if request.fetches is None else request.fetches


def _is_sound(
    graph: BaseGraph, fetches: Any, own_feeds: Iterable[Any], feeds: Iterable[Any]
) -> bool:
    try:
        for leaf in nest.leaves(fetches):
            graph.as_graph_element(leaf)
        for key in own_feeds:
            graph.elements_fed(key)
        graph.check_run(fetches, [key for key in feeds if _is_tensor(graph, key)])
    except (TypeError, ValueError, KeyError, RecursionError):
        return False
    return True


def _is_tensor(graph: BaseGraph, key: Any) -> bool:
    try:
        return isinstance(graph.as_graph_element(key), Tensor)
    except (TypeError, ValueError, KeyError):
        return False


def _has_feeds(request: Any) -> bool:
    # An empty feed_dict is one too, which the hook may fill.
    return request.feed_dict is not None or request.options is not None


def _key(request: Request) -> Any:
    if request is None:
        return None
    feeds = tuple(request.feed_dict or ())
    return structure_key(request.fetches), _has_feeds(request), feeds
