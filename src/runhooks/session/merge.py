"""``RequestMerger``: makes one run of what the caller and all hooks ask for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from runhooks.contract import RawSession, SessionRunArgs
from runhooks.engines import foreign
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.base import BaseGraph, StepPart
from runhooks.graph.engine import BoundedCache
from runhooks.graph.nodes import Tensor
from runhooks.graph.plan import CALLER
from runhooks.session.hooks import ScheduledHook

_log = logging.getLogger("runhooks")

_NOTHING: list[Any] = []

Requests = Mapping[ScheduledHook, SessionRunArgs]

_Watched = tuple[nest.FetchList, list[ScheduledHook]]


class _Merged(NamedTuple):
    """What was merged last, as a rule for the next run too."""

    caller: nest.KnownFetches
    requests: list[nest.KnownFetches]
    fetches: nest.FetchList


class _Steps(NamedTuple):
    """Whether a request lacked a step when it was last made."""

    caller: nest.KnownFetches
    request: nest.KnownFetches
    feeds: tuple[Any, ...]
    lacking: bool


class _Part(NamedTuple):
    """What the run that was asked for last does to the global step."""

    caller: nest.KnownFetches
    feeds: tuple[Any, ...]
    part: StepPart


class RequestMerger:
    """Merges the requests of the caller and the hooks of one session into one run.

    A loop asks for the same again and again: each list of fetches is made once.
    """

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self._graph = foreign.graph_of(raw.graph)
        self._has_objects = self._graph.objects is not None
        self._lists: BoundedCache[Any, nest.FetchList] = BoundedCache()
        self._last: _Merged | None = None
        self._with_watched: BoundedCache[Any, _Watched] = BoundedCache()
        self._last_watched: tuple[nest.KnownFetches, _Watched] | None = None
        self._last_steps: dict[ScheduledHook, _Steps] = {}
        self._needs_step: BoundedCache[Any, bool] = BoundedCache()
        self._spread: BoundedCache[Any, list[str]] = BoundedCache()
        self._parts: BoundedCache[Any, StepPart] = BoundedCache()
        self._last_part: _Part | None = None
        self._warned = False

    def step_part(self, caller: SessionRunArgs) -> StepPart:
        """Return what a run of what the caller asks for does to the global step."""
        feeds = tuple(caller.feed_dict or ())
        last = self._last_part
        if last is not None and last.feeds == feeds and last.caller.is_the_same_as(caller.fetches):
            return last.part
        try:
            part = self._parts.get_or_make(
                (nest.structure_key(caller.fetches), *feeds),
                lambda: self._raw.step_part(caller.fetches, feeds),
            )
        except (TypeError, ValueError, KeyError):  # the run will say what is wrong
            return StepPart.WHOLE
        self._last_part = _Part(nest.KnownFetches(caller.fetches), feeds, part)
        return part

    def with_watched(
        self, fetches: Any, watching: Sequence[ScheduledHook]
    ) -> tuple[list[Any], list[ScheduledHook]]:
        """Return the caller's fetches followed by what ``watching`` hooks watch, and these hooks.

        Hooks that watch the value of a step which the caller's fetches do not make are left out.
        """
        last = self._last_watched
        if last is not None and last[0].is_the_same_as(fetches):
            return last[1]

        def merged() -> _Watched:
            kept = [it for it in watching if not self._lacks_step(it, fetches, it.watched, ())]
            watched = {_name(hook): hook.watched for hook in kept}
            return nest.FetchList([(CALLER, fetches), *watched.items()]), kept

        watched = self._with_watched.get_or_make(nest.structure_key(fetches), merged)
        self._last_watched = nest.KnownFetches(fetches), watched
        return watched

    def check_lone(self, hook: ScheduledHook, request: SessionRunArgs) -> None:
        """Raise RuntimeError if ``request``, which one rank makes, takes all of them to answer."""
        objects = self._graph.objects
        if objects is None or request.fetches is None:
            return
        is_spread = objects.is_spread

        def spread() -> list[str]:
            effects = self._graph.effects_of(request.fetches, request.feed_dict or ())
            return sorted(op.name for op in effects.reads | effects.captures if is_spread(op.name))

        names = self._spread.get_or_make(nest.structure_key(request.fetches), spread)
        if names:
            raise RuntimeError(
                f"the hook {hook.name} asks for {names[0]!r} on one rank, but each rank holds a "
                "part of it, and this one would wait for the others: let all ranks call the hook, "
                "with hook.runs_on = 'all'"
            )

    def lacks_step(
        self, caller: SessionRunArgs, hook: ScheduledHook, request: SessionRunArgs
    ) -> bool:
        """Return whether ``request`` needs a step that the caller's fetches do not make."""
        if not self._has_objects or request.fetches is None:
            return False
        feeds = (*(caller.feed_dict or ()), *(request.feed_dict or ()))
        last = self._last_steps.get(hook)
        if (
            last is not None
            and last.caller.is_the_same_as(caller.fetches)
            and last.request.is_the_same_as(request.fetches)
            and last.feeds == feeds
        ):
            return last.lacking
        key = nest.structure_key([caller.fetches, request.fetches]), feeds
        lacking = self._needs_step.get_or_make(
            key, lambda: self._lacks_step(hook, caller.fetches, request.fetches, feeds)
        )
        asked = nest.KnownFetches(caller.fetches), nest.KnownFetches(request.fetches)
        self._last_steps[hook] = _Steps(*asked, feeds, lacking)
        return lacking

    def args(self, caller: SessionRunArgs, requests: Requests) -> SessionRunArgs:
        """Return the arguments of one run for the caller and the hooks.

        Its fetches are a list: the caller's first, then each hook's.

        Raises:
            RuntimeError: If two parties feed one tensor, or give options that cannot be merged.
        """
        fetches = self._fetch_list(caller, requests)
        feed_dict, options = caller.feed_dict, caller.options
        for request in requests.values():
            if request.feed_dict or request.options is not None:
                parties = {CALLER: caller, **{hook.name: it for hook, it in requests.items()}}
                feed_dict, options = _feeds(self._graph, parties), self._options(parties)
                break
        return SessionRunArgs(fetches, feed_dict, options)

    def note_bad_requests(
        self, error: Exception, caller: SessionRunArgs, requests: Requests
    ) -> None:
        """Note on ``error`` which hook, if any, asks for or feeds what this run cannot compute."""
        if not isinstance(caller.feed_dict, Mapping | None):
            return
        fed = {key for args in (caller, *requests.values()) for key in args.feed_dict or ()}
        if not _is_sound(self._graph, caller.fetches, caller.feed_dict or (), fed):
            return
        for hook, request in requests.items():
            if not _is_sound(self._graph, _fetches(request), request.feed_dict or (), fed):
                add_note(error, f"in before_run of the hook {hook.name}, which asks for it")

    def note_bad_watched(
        self, error: Exception, caller: SessionRunArgs, watching: Sequence[ScheduledHook]
    ) -> None:
        """Note on ``error`` which hook, if any, watches what this run cannot compute."""
        requests = {hook: SessionRunArgs(hook.watched) for hook in watching}
        self.note_bad_requests(error, caller, requests)

    def _lacks_step(
        self, hook: ScheduledHook, caller: Any, request: Any, feeds: Iterable[Any]
    ) -> bool:
        if not self._has_objects:
            return False
        try:
            made = self._graph.effects_of(caller, feeds).steps
            needs = self._graph.effects_of(request, feeds)
        except (TypeError, ValueError):  # the run will say what is wrong
            return False
        missing = needs.steps - made
        if missing and missing < needs.steps and not self._warned:
            self._warned = True
            _log.warning(
                "the request of the hook %s waits for a run that makes all of the steps %s, whose "
                "outputs it asks for",
                *(hook.name, sorted(op.name for op in needs.steps)),
            )
        return bool(missing) or bool(needs.step_captures and not made)

    def _options(self, parties: Mapping[str, SessionRunArgs]) -> Any:
        given = {name: args.options for name, args in parties.items() if args.options is not None}
        return self._raw.merge_options(given) if given else None

    def _fetch_list(self, caller: SessionRunArgs, requests: Requests) -> nest.FetchList:
        last = self._last
        if last is not None and _is_last(last, caller, requests):
            return last.fetches
        fetches = [caller.fetches, *[_fetches(it) for it in requests.values()]]

        def made() -> nest.FetchList:
            parties = [CALLER, *[_name(hook) for hook in requests]]
            return nest.FetchList(zip(parties, fetches, strict=True))

        merged = self._lists.get_or_make(nest.structure_key(fetches), made)
        asked = [nest.KnownFetches(it.fetches) for it in requests.values()]
        self._last = _Merged(nest.KnownFetches(caller.fetches), asked, merged)
        return merged


def _is_last(last: _Merged, caller: SessionRunArgs, requests: Requests) -> bool:
    if len(requests) != len(last.requests) or not last.caller.is_the_same_as(caller.fetches):
        return False
    for asked, request in zip(last.requests, requests.values()):  # noqa: B905 - compared above
        if not asked.is_the_same_as(request.fetches):
            return False
    return True


def _is_sound(
    graph: BaseGraph, fetches: Any, own_feeds: Iterable[Any], feeds: Iterable[Any]
) -> bool:
    try:
        for leaf in (*nest.leaves(fetches), *own_feeds):
            graph.as_graph_element(leaf)
        graph.check_run(fetches, [key for key in feeds if _is_tensor(graph, key)])
    except (TypeError, ValueError, KeyError, RecursionError):
        return False
    return True


def _name(hook: ScheduledHook) -> str:
    return f"the hook {hook.name}"


def _is_tensor(graph: BaseGraph, key: Any) -> bool:
    try:
        return isinstance(graph.as_graph_element(key), Tensor)
    except (TypeError, ValueError, KeyError):
        return False


def _fetches(request: SessionRunArgs) -> Any:
    return _NOTHING if request.fetches is None else request.fetches


def _feeds(graph: BaseGraph, parties: Mapping[str, SessionRunArgs]) -> dict[Any, Any] | None:
    feeding = {name: args.feed_dict for name, args in parties.items() if args.feed_dict}
    if len(feeding) < 2:
        return next((dict(feed_dict) for feed_dict in feeding.values()), None)
    merged: dict[Any, Any] = {}
    fed_by: dict[Any, str] = {}
    for party, feed_dict in feeding.items():
        for key, value in feed_dict.items():
            tensor = graph.as_graph_element(key)
            if tensor in fed_by:
                raise RuntimeError(
                    f"Same tensor is fed twice: {tensor.name!r} is fed by {fed_by[tensor]} and by "
                    f"{party}; only one of them may feed it"
                )
            fed_by[tensor] = party
            merged[key] = value
    return merged
