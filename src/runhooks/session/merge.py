"""What the caller and all hooks ask of a run, made one run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from runhooks.contract import RawSession, SessionRunArgs
from runhooks.graph import nest
from runhooks.graph.graph import Graph
from runhooks.graph.plan import make_plan
from runhooks.graph.steps import steps_of
from runhooks.graph.tensor import Operation, Tensor
from runhooks.session.rider import Rider

_log = logging.getLogger("runhooks")

_CALLER = "the caller of run"
_NOTHING: list[Any] = []
_LEAVES = (Tensor, Operation, str)


class Merger:
    """Makes one run of what the caller and the hooks ask for.

    A loop asks for the same again and again: each list of fetches is made once.
    """

    def __init__(self, raw: RawSession) -> None:
        self._graph = raw.graph
        self._merge_options = getattr(raw, "merge_options", None)
        self._has_parts = getattr(raw.graph, "parts", None) is not None
        self._joints: dict[Any, nest.Joint] = {}
        self._watched: dict[Any, tuple[nest.Joint, list[Rider]]] = {}
        self._started: dict[Any, bool] = {}
        self._warned = False

    def with_watched(
        self, fetches: Any, watching: Sequence[Rider]
    ) -> tuple[list[Any], list[Rider]]:
        """What the caller asks and, after it, what each of ``watching`` asks in every run.

        And who these are: those for whom a step would have to be made are left out.
        """
        key = fetches if isinstance(fetches, _LEAVES) else nest.structure_key(fetches)
        try:
            return self._watched[key]
        except (KeyError, TypeError):
            kept = [it for it in watching if not self._starts(it.name, fetches, it.watched, ())]
            joint = nest.Joint((fetches, *[rider.watched for rider in kept])), kept
        with suppress(TypeError):  # something in it is no part of a graph: the run will say so
            self._watched[key] = joint
        return joint

    def starts_step(self, caller: SessionRunArgs, rider: Rider, request: SessionRunArgs) -> bool:
        """Whether ``request``, of ``rider``, needs a step that the caller's fetches do not make."""
        if not self._has_parts or request.fetches is None:
            return False
        feeds = (*(caller.feed_dict or ()), *(request.feed_dict or ()))
        key = nest.structure_key([caller.fetches, request.fetches]), feeds
        try:
            return self._started[key]
        except (KeyError, TypeError):
            starts = self._starts(rider.name, caller.fetches, request.fetches, feeds)
        with suppress(TypeError):
            self._started[key] = starts
        return starts

    def _starts(self, hook: str, caller: Any, request: Any, feeds: Iterable[Any]) -> bool:
        if not self._has_parts:
            return False
        try:
            ours, asked = (
                steps_of(self._graph, caller, feeds),
                steps_of(self._graph, request, feeds),
            )
        except (TypeError, ValueError):  # the run will say what is wrong
            return False
        missing = asked.made - ours.made
        if missing and missing < asked.made and not self._warned:
            self._warned = True
            _log.warning(
                "the hook %s asks for outputs of the steps %s, and is put off until one run makes "
                "them all",
                *(hook, sorted(op.name for op in asked.made)),
            )
        return bool(missing) or bool(asked.captured and not ours.made)

    def args(
        self, caller: SessionRunArgs, requests: Mapping[Rider, SessionRunArgs]
    ) -> SessionRunArgs:
        """The arguments of one run for the caller and for the hooks that ask for something.

        Its fetches are a list, the caller's first and then each hook's. Raises RuntimeError if two
        parties feed one tensor or give options.
        """
        fetches = self._joint([caller.fetches, *[_fetches(it) for it in requests.values()]])
        feed_dict, options = caller.feed_dict, caller.options
        for request in requests.values():
            if request.feed_dict or request.options is not None:
                parties = {_CALLER: caller, **{r.name: args for r, args in requests.items()}}
                feed_dict, options = _feeds(self._graph, parties), self._options(parties)
                break
        return SessionRunArgs(fetches, feed_dict, options)

    def _options(self, parties: Mapping[str, SessionRunArgs]) -> Any:
        given = {name: args.options for name, args in parties.items() if args.options is not None}
        if len(given) > 1 and self._merge_options is None:
            raise RuntimeError(f"run options are given by {' and '.join(given)}: only one may")
        if not given or self._merge_options is None:
            return next(iter(given.values()), None)
        return self._merge_options(list(given.values()))

    def _joint(self, parts: list[Any]) -> nest.Joint:
        key = nest.structure_key(parts)
        try:
            return self._joints[key]
        except (KeyError, TypeError):
            joint = nest.Joint(parts)
        with suppress(TypeError):
            self._joints[key] = joint
        return joint


def note_bad_requests(
    error: Exception, graph: Any, caller: SessionRunArgs, requests: Mapping[Rider, SessionRunArgs]
) -> None:
    """Note on ``error`` which hook, if any, asks for or feeds what this run cannot compute."""
    fed = {key for args in (caller, *requests.values()) for key in args.feed_dict or ()}
    if not _is_sound(graph, caller.fetches, caller.feed_dict or (), fed):
        return
    for rider, request in requests.items():
        if not _is_sound(graph, _fetches(request), request.feed_dict or (), fed):
            error.add_note(f"in before_run of the hook {rider.name}, which asks for it")


def _is_sound(graph: Any, fetches: Any, own_feeds: Iterable[Any], feeds: Iterable[Any]) -> bool:
    try:
        for leaf in (*nest.leaves(fetches), *own_feeds):
            graph.as_graph_element(leaf)
        if isinstance(graph, Graph):
            make_plan(graph, fetches, [key for key in feeds if _is_tensor(graph, key)])
    except (TypeError, ValueError, KeyError):
        return False
    return True


def _is_tensor(graph: Graph, key: Any) -> bool:
    try:
        return isinstance(graph.as_graph_element(key), Tensor)
    except (TypeError, ValueError):
        return False


def _fetches(request: SessionRunArgs) -> Any:
    return _NOTHING if request.fetches is None else request.fetches


def _feeds(graph: Any, parties: Mapping[str, SessionRunArgs]) -> dict[Any, Any] | None:
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
                    f"{party}; one of them must leave it to the other"
                )
            fed_by[tensor] = party
            merged[key] = value
    return merged
