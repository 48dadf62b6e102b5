"""``RequestMerger``: what the requests of hooks do to a run, and their feeds as one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.contract import RawSession, SessionRunArgs
from runhooks.engines import foreign
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.base import BaseGraph, StepPart
from runhooks.graph.nodes import Tensor
from runhooks.graph.plan import CALLER
from runhooks.session.hooks import ScheduledHook

_log = logging.getLogger("runhooks")

Requests = Mapping[ScheduledHook, SessionRunArgs]


class RequestMerger:
    """Knows what the requests of hooks do to the runs of one session, and merges their feeds."""

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self._graph = foreign.graph_of(raw.graph)
        self._warned = False

    def step_part(self, caller: SessionRunArgs) -> StepPart:
        """Return what a run of what the caller asks for does to the global step."""
        try:
            return self._raw.step_part(caller.fetches, tuple(caller.feed_dict or ()))
        except (TypeError, ValueError, KeyError):  # the run will say what is wrong
            return StepPart.WHOLE

    def check_lone(self, hook: ScheduledHook, request: SessionRunArgs) -> None:
        """Raise RuntimeError if ``request``, which one rank makes, takes all of them to answer."""
        objects = self._graph.objects
        if objects is None or request.fetches is None:
            return
        effects = self._graph.effects_of(request.fetches, request.feed_dict or ())
        touched = effects.reads | effects.captures
        names = sorted(op.name for op in touched if objects.is_spread(op.name))
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
        if self._graph.objects is None or request.fetches is None:
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
                "the request of the hook %s waits for a run that makes all of the steps %s, whose "
                "outputs it asks for",
                *(hook.name, sorted(op.name for op in needs.steps)),
            )
        return bool(missing) or bool(needs.step_captures and not made)

    def merged(self, caller: SessionRunArgs, requests: Requests) -> tuple[Any, Any]:
        """Return the feed_dict and the options of one run for the caller and the hooks.

        Raises:
            RuntimeError: If two parties feed one tensor, or give options that cannot be merged.
        """
        parties = {CALLER: caller, **{hook.name: it for hook, it in requests.items()}}
        given = {name: args.options for name, args in parties.items() if args.options is not None}
        options = self._raw.merge_options(given) if given else None
        return _feeds(self._graph, parties), options

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
            if not _is_sound(self._graph, wanted_of(request), request.feed_dict or (), fed):
                add_note(error, f"in before_run of the hook {hook.name}, which asks for it")


def wanted_of(request: SessionRunArgs) -> Any:
    """Return what ``request`` wants as fetches: an empty list if it only feeds."""
    return [] if request.fetches is None else request.fetches


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


def _is_tensor(graph: BaseGraph, key: Any) -> bool:
    try:
        return isinstance(graph.as_graph_element(key), Tensor)
    except (TypeError, ValueError, KeyError):
        return False


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
