"""Which arrays are moving averages of others: they belong to a run, and not to its model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.graph.base import BaseGraph

#: The collection of the averages of a graph, each with its ``places``; and the key in the state of
#: a hook under which a checkpoint has these: the names of averages by those of their parameters.
MOVING_AVERAGES = "runhooks.moving_averages"


def averages_in(graph: BaseGraph) -> list[str]:
    """Return the names of the averages that ``graph`` keeps."""
    return [name for it in graph.get_collection(MOVING_AVERAGES) for name in it.places.values()]


def saved_averages(states: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of parameters by those of their averages, which hooks kept in ``states``."""
    kept = [it.get(MOVING_AVERAGES) for it in states.values() if isinstance(it, Mapping)]
    return {
        average: part
        for places in kept
        if isinstance(places, Mapping)
        for part, average in places.items()
        if isinstance(average, str)
    }


def is_average(name: str, averages: Iterable[str]) -> bool:
    """Return whether ``name`` is that of one of ``averages``, or of an array in it."""
    return any(name == it or name.startswith((f"{it}/", f"{it}.")) for it in averages)
