"""Which steps, that change the parts of a graph, a run makes; for a hook must not start one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from runhooks.graph.graph import Graph
from runhooks.graph.parts import GRADIENT, OUTPUT, STEP
from runhooks.graph.plan import elements_of, needed_for
from runhooks.graph.tensor import Operation


class Steps(NamedTuple):
    """Of some fetches: the steps they make, and what they capture that is there only with one."""

    made: frozenset[Operation]
    captured: frozenset[Operation]


def steps_of(graph: Graph, fetches: Any, feed_keys: Iterable[Any] = ()) -> Steps:
    """The steps of ``fetches`` when ``feed_keys`` are fed. Raises as ``make_plan``."""
    needed = needed_for(graph, fetches, feed_keys)
    return Steps(
        frozenset(op for op in needed if op.type == STEP),
        frozenset(op for op in needed if op.type == GRADIENT),
    )


def step_not_named(
    graph: Graph, fetches: Any, feed_keys: Iterable[Any]
) -> tuple[Operation, Operation] | None:
    """A step that ``fetches`` make for one of its outputs alone, and that output; None if none is.

    A step is named by its own operation, and by others that have no value, such as groups.
    """
    needed = needed_for(graph, fetches, feed_keys)
    steps = {op for op in needed if op.type == STEP}
    if not steps:
        return None
    elements = elements_of(graph, fetches)
    named = [e for e in elements if isinstance(e, Operation) or e.op.type == STEP]
    steps -= steps_of(graph, named, feed_keys).made
    outputs = [op for op in needed if op.type == OUTPUT and op.inputs[0].op in steps]
    return (outputs[0].inputs[0].op, outputs[0]) if outputs else None
