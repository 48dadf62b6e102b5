"""``Plan``: what one set of fetches and feeds needs, pruned, and where each part is computed.

    inputs -> head -> body -> tail

``inputs`` are drawn on the host; ``head`` is what the host can compute then, ``body`` is for the
engine, and ``tail`` is what the host makes of the body's values: summaries, the global step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from runhooks.graph import nest
from runhooks.graph.graph import Graph
from runhooks.graph.parts import CAPTURE, GRADIENT, READ
from runhooks.graph.placement import Phases, place
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable

AnyTensor = TypeVar("AnyTensor", bound=Tensor)


@dataclass(frozen=True)
class Body:
    """What an engine compiles: ``operations``, from ``given`` and variables to ``fetches``.

    ``assigned`` get new values, ``kept`` are only read; all in the order of the graph. ``donate``
    is false if assignments come after the body, so that the old values must outlive it.
    """

    operations: tuple[Operation, ...]
    given: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    assigned: tuple[Variable, ...]
    kept: tuple[Variable, ...]
    donate: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute and nothing to read."""
        return not (self.operations or self.fetches)


@dataclass(frozen=True)
class Plan:
    """The parts of a run in the order in which they are computed, and the shape of its result.

    ``feeds`` are the tensors fed, in the order of the feed_dict; ``counters`` the variables kept on
    the host, as the global step is, whose values are read. ``result`` is the structure of the
    fetches, with None for operations; ``fetches`` the tensors in it.
    """

    feeds: tuple[Tensor, ...]
    inputs: tuple[Operation, ...]
    counters: tuple[Variable, ...]
    head: tuple[Operation, ...]
    body: Body
    tail: tuple[Operation, ...]
    fetches: frozenset[Tensor]
    result: Any


def make_plan(graph: Graph, fetches: Any, feed_keys: Iterable[Any]) -> Plan:
    """Find what ``fetches`` need when the tensors ``feed_keys`` are fed.

    Raises ValueError for an unknown name, a part of another graph, a tensor fed twice and a
    placeholder that is not fed; TypeError for what cannot be fetched or fed.
    """
    feeds = _fed_tensors(graph, feed_keys)
    fed = set(feeds)
    wanted = nest.map_leaves(lambda leaf: _element(graph, "fetches", leaf), fetches)
    elements = list(nest.leaves(wanted))
    fetched = frozenset(element for element in elements if isinstance(element, Tensor))
    needed = _needed(elements, fed)
    parts = place([op for op in needed if op.fn is not None], fed)
    return Plan(
        feeds=feeds,
        inputs=tuple(op for op in needed if op.type == "Inputs"),
        counters=tuple(v for v in _variables(needed) if v.on_host and v not in fed),
        head=parts.head,
        body=_body(parts, needed, fed, fetched),
        tail=parts.tail,
        fetches=fetched,
        result=nest.map_leaves(_none_if_operation, wanted),
    )


def inputs_of(graph: Graph, fetches: Any) -> list[Operation]:
    """The inputs that ``fetches`` draw from, whatever may be fed.

    Raises ValueError or TypeError as ``make_plan``.
    """
    return [op for op in needed_for(graph, fetches) if op.type == "Inputs"]


def needed_for(graph: Graph, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Operation]:
    """All that ``fetches`` need when ``feed_keys`` are fed, and whatever else must be.

    Raises ValueError or TypeError as ``make_plan``.
    """
    placeholders = {
        t for op in graph.get_operations() if op.type == "Placeholder" for t in op.outputs
    }
    return _needed(elements_of(graph, fetches), {*placeholders, *_fed_tensors(graph, feed_keys)})


def elements_of(graph: Graph, fetches: Any) -> list[Tensor | Operation]:
    """The tensors and operations that ``fetches`` mean. Raises as ``make_plan``."""
    return [_element(graph, "fetches", leaf) for leaf in nest.leaves(fetches)]


def _element(graph: Graph, argument: str, leaf: Any) -> Tensor | Operation:
    try:
        return graph.as_graph_element(leaf)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None


def _fed_tensors(graph: Graph, keys: Iterable[Any]) -> tuple[Tensor, ...]:
    feeds: dict[Tensor, None] = {}
    for key in keys:
        tensor = _element(graph, "feed_dict", key)
        if not isinstance(tensor, Tensor):
            raise TypeError(f"feed_dict: {key!r} is an operation; feed a tensor, such as 'name:0'")
        if tensor in feeds:
            raise ValueError(f"feed_dict: {tensor.name!r} is fed twice")
        if tensor.op.type in (READ, CAPTURE, GRADIENT):
            raise ValueError(
                f"feed_dict: {tensor.name!r} is read of a part of the graph, which no feed "
                "changes: change the part itself"
            )
        feeds[tensor] = None
    return tuple(feeds)


def _none_if_operation(element: Tensor | Operation) -> Tensor | None:
    return element if isinstance(element, Tensor) else None


def _needed(elements: Iterable[Tensor | Operation], fed: set[Tensor]) -> list[Operation]:
    found: dict[Operation, None] = {}
    waiting: list[tuple[Tensor | Operation, str]] = [(part, "run") for part in elements]
    while waiting:
        part, needed_by = waiting.pop()
        if isinstance(part, Tensor):
            if part in fed:
                continue
            part = part.op
        if part in found:
            continue
        if part.type == "Placeholder":
            raise ValueError(
                f"placeholder {part.outputs[0].name!r}, which {needed_by} needs, has no value: "
                "give it one in feed_dict"
            )
        found[part] = None
        waiting += [(tensor, repr(part.name)) for tensor in part.inputs]
        waiting += [(control, repr(part.name)) for control in part.control_inputs]
    return sorted(found, key=lambda op: op.number)


def _variables(operations: Iterable[Operation]) -> list[Variable]:
    return [v for op in operations for v in op.outputs if isinstance(v, Variable)]


def _inputs(operations: Iterable[Operation]) -> set[Tensor]:
    return {tensor for op in operations for tensor in op.inputs}


def _ordered(tensors: Iterable[AnyTensor]) -> tuple[AnyTensor, ...]:
    # In one order whatever was asked first: equal bodies are then compiled once.
    return tuple(sorted(tensors, key=lambda t: (t.op.number, t.index)))


def _body(
    parts: Phases, needed: Iterable[Operation], fed: set[Tensor], fetched: frozenset[Tensor]
) -> Body:
    made = {tensor for op in parts.body for tensor in op.outputs}
    read = [v for v in _variables(needed) if not v.on_host]
    assigned = {op.assigns for op in parts.body if op.assigns is not None}
    own = made.union(read).difference(fed)
    return Body(
        operations=parts.body,
        given=_ordered(_inputs(parts.body) - own),
        fetches=_ordered(own & (fetched | _inputs(parts.tail))),
        assigned=_ordered(assigned),
        kept=_ordered(set(read) - assigned),
        donate=not any(op.assigns is not None for op in parts.tail),
    )
