"""``Plan``: what one set of fetches and feeds needs, pruned, and where each part is computed.

    inputs -> head -> body -> tail

``inputs`` are drawn on the host; ``head`` is what the host can compute then, ``body`` is for the
engine, and ``tail`` is what the host makes of the body's values: summaries, the global step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runhooks.graph import nest
from runhooks.graph.graph import Graph
from runhooks.graph.tensor import Operation, Placement, Tensor
from runhooks.graph.variable import Variable


@dataclass(frozen=True)
class Body:
    """What an engine compiles: ``operations``, from ``given`` and variables to ``fetches``.

    ``assigned`` get new values, ``kept`` are only read. ``donate`` is false if something that can
    still fail comes after the body, so that the old values must outlive it.
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

    ``feeds`` are the tensors fed, in the order of the feed_dict; ``steps`` the variables kept on
    the host whose values are read. ``read`` makes the result from the values of ``fetches``.
    """

    feeds: tuple[Tensor, ...]
    inputs: tuple[Operation, ...]
    steps: tuple[Variable, ...]
    head: tuple[Operation, ...]
    body: Body
    tail: tuple[Operation, ...]
    fetches: frozenset[Tensor]
    read: Callable[[Mapping[Tensor, Any]], Any]


def make_plan(graph: Graph, fetches: Any, feed_keys: Iterable[Any]) -> Plan:
    """Find what ``fetches`` need when the tensors ``feed_keys`` are fed.

    Raises ValueError for an unknown name, a part of another graph, a tensor fed twice and a
    placeholder that is not fed; TypeError for what cannot be fetched or fed.
    """
    feeds = _fed_tensors(graph, feed_keys)
    wanted = nest.map_leaves(lambda leaf: _element(graph, "fetches", leaf), fetches)
    elements = list(nest.leaves(wanted))
    needed = _needed(elements, set(feeds))
    computed = [op for op in needed if op.fn is not None and op.type != "Inputs"]
    head, body, tail = _place(computed, feeds)
    fetched = frozenset(element for element in elements if isinstance(element, Tensor))
    reads = fetched.union(*(op.inputs for op in tail))
    return Plan(
        feeds=feeds,
        inputs=tuple(op for op in needed if op.type == "Inputs"),
        steps=tuple(v for v in _read(needed) if v.on_host),
        head=head,
        body=_body(body, needed, feeds, reads, tail),
        tail=tail,
        fetches=fetched,
        read=nest.reader(nest.map_leaves(_none_if_operation, wanted)),
    )


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
        feeds[tensor] = None
    return tuple(feeds)


def _none_if_operation(element: Tensor | Operation) -> Tensor | None:
    return element if isinstance(element, Tensor) else None


def _needed(elements: Iterable[Tensor | Operation], fed: set[Tensor]) -> list[Operation]:
    found: dict[Operation, None] = {}
    waiting = list(elements)
    while waiting:
        part = waiting.pop()
        if isinstance(part, Tensor):
            if part in fed:
                continue
            part = part.op
        if part in found:
            continue
        if part.type == "Placeholder":
            raise ValueError(
                f"placeholder {part.outputs[0].name!r} has no value: give it one in feed_dict"
            )
        found[part] = None
        waiting += [*part.inputs, *part.control_inputs]
    return sorted(found, key=lambda op: op.number)


def _place(
    operations: list[Operation], feeds: tuple[Tensor, ...]
) -> tuple[tuple[Operation, ...], tuple[Operation, ...], tuple[Operation, ...]]:
    fed = set(feeds)
    unknown = {tensor for op in operations for tensor in op.outputs}.union(
        tensor
        for op in operations
        for tensor in op.inputs
        if isinstance(tensor, Variable) and not tensor.on_host
    )
    unknown -= fed
    early: dict[Operation, None] = {}
    for op in operations:
        if op.placement is not Placement.ENGINE and unknown.isdisjoint(op.inputs):
            early[op] = None
            unknown.difference_update(op.outputs)
    hosted = {op for op in operations if op.placement is Placement.HOST}
    for_host = {tensor for op in hosted for tensor in op.inputs}
    for op in reversed(early):
        if not for_host.isdisjoint(op.outputs):
            hosted.add(op)
            for_host.update(op.inputs)
    head = tuple(op for op in early if op in hosted)
    body = tuple(op for op in operations if op not in hosted)
    tail = tuple(op for op in operations if op in hosted and op not in head)
    late = {tensor for op in tail for tensor in op.outputs} - fed
    for op in body:
        if late.intersection(op.inputs):
            raise ValueError(
                f"{op.name!r} takes {sorted(t.name for t in late.intersection(op.inputs))}, which "
                "the host makes after the engine has run: fetch it and use it in a next run"
            )
    return head, body, tail


def _read(operations: Iterable[Operation]) -> list[Variable]:
    return [v for op in operations for v in op.outputs if isinstance(v, Variable)]


def _body(
    operations: tuple[Operation, ...],
    needed: list[Operation],
    feeds: tuple[Tensor, ...],
    reads: frozenset[Tensor],
    tail: tuple[Operation, ...],
) -> Body:
    made = {tensor for op in operations for tensor in op.outputs}
    assigned = tuple(dict.fromkeys(op.assigns for op in operations if op.assigns is not None))
    variables = dict.fromkeys([*assigned, *(v for v in _read(needed) if not v.on_host)])
    taken = dict.fromkeys(tensor for op in operations for tensor in op.inputs)
    own = made.union(variables).difference(feeds)
    fetches = tuple(t for t in reads if t in own)
    return Body(
        operations=operations,
        given=tuple(tensor for tensor in taken if tensor not in own),
        fetches=tuple(sorted(fetches, key=lambda t: (t.op.number, t.index))),
        assigned=assigned,
        kept=tuple(v for v in variables if v not in assigned),
        donate=not any(op.assigns is not None for op in tail),
    )
