"""``Plan``: the pruned operations that one set of fetches and feeds needs, and their places.

    inputs -> head -> body -> tail

``inputs`` are drawn on the host; the host computes ``head``, the engine ``body``, and the host
again ``tail``, which needs values of the body: summaries, the global step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from runhooks.graph import nest
from runhooks.graph.base import BaseGraph, GraphKeys
from runhooks.graph.nodes import (
    READS_OBJECTS,
    Effect,
    Operation,
    Part,
    Placement,
    Tensor,
    Variable,
)
from runhooks.near_names import suggestion


class _Phase(IntEnum):
    HEAD = 0
    BODY = 1
    TAIL = 2


class Phases(NamedTuple):
    """The operations of a run in order: for the host, for the engine, for the host again."""

    head: tuple[Operation, ...]
    body: tuple[Operation, ...]
    tail: tuple[Operation, ...]


def place(operations: Sequence[Operation], fed: Iterable[Tensor]) -> Phases:
    """Divide ``operations``, in the order of their numbers, among the phases of a run.

    An operation that must be on the host is computed as soon as its inputs are known. Arithmetic
    goes to the engine, unless it needs a value that the host computes after the engine. If an
    operation on the host needs it, the host computes it; if the engine needs it too, both do, so
    that what the engine computes does not depend on what else is asked for.

    Raises:
        ValueError: If the engine would need a value that the host computes after it.
    """
    phases = _earliest(operations, set(fed))
    for_host = {tensor for op in operations if _on_host(op, phases) for tensor in op.inputs}
    for op in reversed(operations):
        if op.placement is Placement.EITHER and phases[op] is _Phase.HEAD:
            if for_host.isdisjoint(op.outputs):
                phases[op] = _Phase.BODY
            else:
                for_host.update(op.inputs)
    twice = _needed_by_engine_too(operations, phases)
    return Phases(
        head=tuple(op for op in operations if phases[op] is _Phase.HEAD),
        body=tuple(op for op in operations if phases[op] is _Phase.BODY or op in twice),
        tail=tuple(op for op in operations if phases[op] is _Phase.TAIL),
    )


def _earliest(operations: Sequence[Operation], fed: set[Tensor]) -> dict[Operation, _Phase]:
    phases: dict[Operation, _Phase] = {}
    last_assigned: dict[Variable, _Phase] = {}
    for op in operations:
        needs = max((_known(t, phases, fed) for t in op.inputs), default=_Phase.HEAD)
        if op.placement is Placement.ENGINE:
            if needs is _Phase.TAIL:
                raise ValueError(
                    f"{op.name!r} runs in the engine, but takes a value that the host computes "
                    "after it: fetch that value, and feed it to the next run"
                )
            phases[op] = _Phase.BODY
        elif op.placement is Placement.HOST and needs is not _Phase.HEAD:
            phases[op] = _Phase.TAIL
        else:
            phases[op] = needs
        if op.assigns is not None:
            # Assignments to one variable keep their order.
            phases[op] = max(phases[op], last_assigned.get(op.assigns, _Phase.HEAD))
            last_assigned[op.assigns] = phases[op]
    return phases


def _needed_by_engine_too(
    operations: Sequence[Operation], phases: dict[Operation, _Phase]
) -> set[Operation]:
    taken = {t for op in operations if phases[op] is _Phase.BODY for t in op.inputs}
    twice = set()
    for op in reversed(operations):
        is_on_host = op.placement is Placement.EITHER and phases[op] is _Phase.HEAD
        if is_on_host and not taken.isdisjoint(op.outputs):
            twice.add(op)
            taken.update(op.inputs)
    return twice


def _known(tensor: Tensor, phases: dict[Operation, _Phase], fed: set[Tensor]) -> _Phase:
    if tensor in fed:
        return _Phase.HEAD
    if isinstance(tensor, Variable):
        return _Phase.HEAD if tensor.on_host else _Phase.BODY
    return phases.get(tensor.op, _Phase.HEAD)  # what is not computed is drawn from an input


def _on_host(op: Operation, phases: dict[Operation, _Phase]) -> bool:
    return op.placement is Placement.HOST or phases[op] is _Phase.TAIL


#: What the caller of a run is called in messages.
CALLER = "the caller of run"

AnyTensor = TypeVar("AnyTensor", bound=Tensor)


@dataclass(frozen=True)
class Party:
    """What one party of a run, its caller or a hook, asks of the engine.

    Attributes:
        operations: The operations of the body that it needs, in the order of the graph.
        fetches: The tensors of the body whose values it gets, or the host needs for it.
        name: Who it is, for messages.
    """

    operations: tuple[Operation, ...]
    fetches: tuple[Tensor, ...]
    name: str = field(default=CALLER, compare=False)


@dataclass(frozen=True)
class Body:
    """The operations that an engine computes, for one party or several.

    All tuples are in the order of the graph.

    Attributes:
        operations: What to compute.
        given: The tensors whose values the function is given.
        fetches: The tensors whose values it returns.
        assigned: The variables that get new values.
        kept: The variables that are only read.
        donate: Whether the old values of ``assigned`` may be given up; False if assignments follow
            after the body, which may fail.
        parties: Who asks for what: the caller of the run first.
    """

    operations: tuple[Operation, ...]
    given: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    assigned: tuple[Variable, ...]
    kept: tuple[Variable, ...]
    donate: bool
    parties: tuple[Party, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute and nothing to read."""
        return not (self.operations or self.fetches)


def part_of(
    body: Body, operations: Iterable[Operation], fetches: Iterable[Tensor], *, donate: bool = False
) -> Body:
    """Return the body of some of the ``operations`` of ``body``, in the order of the graph.

    What they take and do not make, other than variables, is given.
    """
    kept = tuple(operations)
    known, made = set(body.given), {tensor for op in kept for tensor in op.outputs}
    taken = _inputs(kept).union(fetches)
    assigned = _assigned(kept)
    read = {t for t in taken - known if isinstance(t, Variable)}
    return Body(
        operations=kept,
        given=_ordered((taken - made - read) | (taken & known)),
        fetches=_ordered(fetches),
        assigned=_ordered(assigned),
        kept=_ordered(read - assigned),
        donate=donate,
    )


@dataclass(frozen=True)
class Plan:
    """One run: its operations in the order in which they are computed, and its result.

    Attributes:
        feeds: The tensors that are fed, in the order of the feed_dict.
        inputs: The inputs to draw from.
        counters: The variables on the host, such as the global step, whose values are read.
        head: The operations that the host computes first.
        body: Those that the engine computes.
        tail: Those that the host computes from the values of the body.
        fetches: The tensors in ``result``.
        result: The structure of the fetches, with None for operations.
    """

    feeds: tuple[Tensor, ...]
    inputs: tuple[Operation, ...]
    counters: tuple[Variable, ...]
    head: tuple[Operation, ...]
    body: Body
    tail: tuple[Operation, ...]
    fetches: frozenset[Tensor]
    result: Any


def make_plan(graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any]) -> Plan:
    """Return the plan of a run of ``fetches`` in which the tensors ``feed_keys`` are fed.

    Raises:
        ValueError: For an unknown name, an element of another graph, a tensor that is fed twice
            and a placeholder that is not fed.
        TypeError: For an argument that cannot be fetched or fed.
    """
    keys = tuple(feed_keys)
    try:
        return _plan(graph, fetches, keys)
    except (TypeError, ValueError):
        graph.forget(it for it in (*nest.leaves(fetches), *keys) if isinstance(it, str))
        raise


def _plan(graph: BaseGraph, fetches: Any, feed_keys: tuple[Any, ...]) -> Plan:
    feeds = _fed_tensors(graph, feed_keys)
    fed = set(feeds)
    wanted = nest.map_leaves(lambda leaf: _element(graph, "fetches", leaf), fetches)
    elements = list(nest.leaves(wanted))
    fetched = frozenset(element for element in elements if isinstance(element, Tensor))
    needed = _needed_in_run(graph, elements, fed)
    parts = place([op for op in needed if op.fn is not None], fed)
    return Plan(
        feeds=feeds,
        inputs=tuple(_drawn(graph, needed)),
        counters=tuple(v for v in _variables(needed) if v.on_host and v not in fed),
        head=parts.head,
        body=_body(parts, needed, fed, fetched, _asked(graph, fetches, wanted, fed)),
        tail=parts.tail,
        fetches=fetched,
        result=nest.map_leaves(lambda it: it if isinstance(it, Tensor) else None, wanted),
    )


def needed_for(graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Operation]:
    """Return the operations that ``fetches`` need when ``feed_keys``, and placeholders, are fed.

    Raises as ``make_plan`` does.
    """
    placeholders = {
        t for op in graph.get_operations() if op.type == "Placeholder" for t in op.outputs
    }
    return _needed(elements_of(graph, fetches), {*placeholders, *_fed_tensors(graph, feed_keys)})


def elements_of(graph: BaseGraph, fetches: Any) -> list[Tensor | Operation]:
    """Return the tensors and operations that ``fetches`` stand for. Raises as ``make_plan``."""
    return [_element(graph, "fetches", leaf) for leaf in nest.leaves(fetches)]


def _element(graph: BaseGraph, argument: str, leaf: Any) -> Tensor | Operation:
    try:
        element: Tensor | Operation = graph.as_graph_element(leaf)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None
    return element


def _fed_tensors(graph: BaseGraph, keys: Iterable[Any]) -> tuple[Tensor, ...]:
    feeds: dict[Tensor, None] = {}
    keys = list(keys)
    for key in keys:
        try:
            tensor = _element(graph, "feed_dict", key)
        except ValueError:
            kinds = ("Placeholder", "PlaceholderWithDefault")
            names = [op.name for op in graph.get_operations() if op.type in kinds]
            if not isinstance(key, str) or not names or graph.is_defaulted(key):
                raise
            names = [f"{it}:0" for it in names] if key.endswith(":0") else names
            near = suggestion(key, names) or f"; its placeholders are {names}"
            given = (it.name if isinstance(it, Tensor) else str(it) for it in keys)
            fed = {it.removesuffix(":0") for it in given}
            missing = ", ".join(repr(it) for it in names if it.removesuffix(":0") not in fed)
            near += f"; not fed: {missing}" if missing else ""
            raise ValueError(f"feed_dict: nothing is named {key!r} in the graph{near}") from None
        if not isinstance(tensor, Tensor):
            raise TypeError(f"feed_dict: {key!r} is an operation; feed a tensor, such as 'name:0'")
        if tensor in feeds:
            raise ValueError(f"feed_dict: {tensor.name!r} is fed twice")
        if tensor.op.effect in READS_OBJECTS:
            raise ValueError(
                f"feed_dict: {tensor.name!r} is a value of an object and cannot be fed: "
                "change the object itself"
            )
        feeds[tensor] = None
    return tuple(feeds)


def _fed_names(fed: set[Tensor]) -> str:
    names = sorted(tensor.name.removesuffix(":0") for tensor in fed)
    return f", which has {names}" if fed else ""


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
                f"placeholder {part.outputs[0].name!r}, which {needed_by} needs, is not fed: "
                f"give it a value in feed_dict{_fed_names(fed)}"
            )
        found[part] = None
        waiting += [(tensor, repr(part.name)) for tensor in part.inputs]
        waiting += [(control, repr(part.name)) for control in part.control_inputs]
    return sorted(found, key=lambda op: op.number)


def _needed_in_run(
    graph: BaseGraph, elements: Iterable[Tensor | Operation], fed: set[Tensor]
) -> list[Operation]:
    """Return the operations that ``elements`` need, and the updates that go with their step."""
    elements = list(elements)
    needed = _needed(elements, fed)
    updates = graph.get_collection(GraphKeys.STEP_UPDATES)
    if not updates or not _makes_step(graph, needed):
        return needed
    belongs = _Belonging(graph, needed, fed, updates)
    return _needed([*elements, *filter(belongs, updates)], fed)


def _drawn(graph: BaseGraph, needed: Sequence[Operation]) -> list[Operation]:
    """Return what a run draws from: its inputs, and the number of the epoch."""
    drawn = [op for op in needed if op.type in ("Inputs", "Epoch")]
    if any(op.type == "Epoch" for op in drawn) and not _makes_step(graph, needed):
        return [op.args[0] if op.type == "Epoch" else op for op in drawn]
    return drawn


def _makes_step(graph: BaseGraph, operations: Iterable[Operation]) -> bool:
    steps = graph.get_collection(GraphKeys.GLOBAL_STEP)
    return any(op.effect is Effect.STEP or op.assigns in steps for op in operations)


class _Belonging:
    """Tells which updates go with a run: those of values that it computes anyhow, or of these.

    One that would draw from an input, need a feed, or make another step does not.
    """

    def __init__(
        self,
        graph: BaseGraph,
        needed: Iterable[Operation],
        fed: set[Tensor],
        updates: Iterable[Operation],
    ) -> None:
        self._fed = fed
        self._known = dict.fromkeys(needed, True)
        others = set(graph.get_operations()).difference(updates)
        self._trains = {t.op for op in others if op.assigns is not None for t in op.inputs}

    def __call__(self, op: Operation) -> bool:
        if op not in self._known:
            is_new = op.type in ("Inputs", "Placeholder") or op.effect is Effect.STEP
            self._known[op] = not (is_new or op in self._trains) and all(
                tensor in self._fed or self(tensor.op) for tensor in op.inputs
            )
        return self._known[op]


def _variables(operations: Iterable[Operation]) -> list[Variable]:
    return [v for op in operations for v in op.outputs if isinstance(v, Variable)]


def _inputs(operations: Iterable[Operation]) -> set[Tensor]:
    return {tensor for op in operations for tensor in op.inputs}


def _ordered(tensors: Iterable[AnyTensor]) -> tuple[AnyTensor, ...]:
    # In one order whatever was asked first: equal bodies are then compiled once.
    return tuple(sorted(tensors, key=lambda t: (t.op.number, t.index)))


class _Asked(NamedTuple):
    """What one party asks for."""

    name: str
    fetched: set[Tensor]
    needed: set[Operation]


def _asked(graph: BaseGraph, fetches: Any, wanted: Any, fed: set[Tensor]) -> list[_Asked]:
    by_party = [(CALLER, wanted)]
    if isinstance(fetches, nest.FetchList):
        by_party = list(zip(fetches.parties, wanted, strict=True))
    return [
        _Asked(
            name,
            set(nest.tensors(part)),
            set(_needed_in_run(graph, list(nest.leaves(part)), fed)),
        )
        for name, part in by_party
    ]


def _body(
    parts: Phases,
    needed: Iterable[Operation],
    fed: set[Tensor],
    fetched: frozenset[Tensor],
    asked: Iterable[_Asked],
) -> Body:
    made = {tensor for op in parts.body for tensor in op.outputs}
    read = [v for v in _variables(needed) if not v.on_host]
    assigned = _assigned(parts.body)
    own = made.union(read).difference(fed)
    returned = own.difference(tensor for op in parts.head for tensor in op.outputs)
    return Body(
        operations=parts.body,
        given=_ordered(_inputs(parts.body) - own),
        fetches=_ordered(returned & (fetched | _inputs(parts.tail))),
        assigned=_ordered(assigned),
        kept=_ordered(set(read) - assigned),
        donate=not any(op.assigns is not None for op in parts.tail),
        parties=tuple(_party(it, parts, returned) for it in asked),
    )


def _party(asked: _Asked, parts: Phases, returned: set[Tensor]) -> Party:
    taken = _inputs(op for op in parts.tail if op in asked.needed)
    return Party(
        operations=tuple(op for op in parts.body if op in asked.needed),
        fetches=_ordered(returned & (asked.fetched | taken)),
        name=asked.name,
    )


def core_of(body: Body) -> Body | None:
    """Return what ``body`` computes for the first party that assigns variables: a training step.

    All that this party asks for is in it, but for parts of what calls return, which can be taken
    afterwards. Of other parties' assignments it has those to variables that several parties assign.
    Its fetches are what the party asks for beyond what calls return: values of variables, and
    arithmetic. None if no party assigns any.
    """
    first = stepping_party(body)
    if first is None:
        return None
    kept = _without_last_parts(first)
    while missing := _shared_assignments(body.parties, kept):
        kept |= _with_ancestors(missing, body.operations)
    operations = [op for op in body.operations if op in kept]
    taken = {tensor for op in operations for tensor in op.inputs}
    fetches = [t for t in first.fetches if _is_of_variable(t) or _is_result(t, taken)]
    return part_of(body, operations, fetches, donate=body.donate)


def stepping_party(body: Body) -> Party | None:
    """Return the first party that assigns variables; None if no party does."""
    return next((party for party in body.parties if _assignments(party.operations)), None)


def _without_last_parts(party: Party) -> set[Operation]:
    kept: set[Operation] = set()
    needed = {t for t in party.fetches if not isinstance(t.op.fn, Part) or _is_of_variable(t)}
    for op in reversed(party.operations):
        if not is_arithmetic(op) or not needed.isdisjoint(op.outputs):
            kept.add(op)
            needed.update(op.inputs)
    return kept


def is_arithmetic(op: Operation) -> bool:
    """Return whether ``op`` is computed only where somebody needs its value."""
    return op.placement is Placement.EITHER and op.assigns is None


def _is_of_variable(tensor: Tensor) -> bool:
    """Return whether it is a variable, a new value of one, or a part of these."""
    while isinstance(tensor.op.fn, Part):
        tensor = tensor.op.inputs[0]
    return isinstance(tensor, Variable) or tensor.op.assigns is not None


def _is_result(tensor: Tensor, taken: set[Tensor]) -> bool:
    """Return whether it is arithmetic that only this party needs."""
    is_part = isinstance(tensor.op.fn, Part)
    return is_arithmetic(tensor.op) and not is_part and tensor not in taken


def _shared_assignments(parties: Iterable[Party], kept: set[Operation]) -> set[Operation]:
    """Return assignments that must be in the core beside ``kept``, to keep their order."""
    assigned = _assigned(kept)
    missing = [set(_assignments(party.operations)) - kept for party in parties]
    asking = Counter(variable for ops in missing for variable in _assigned(ops))
    shared = assigned.union(variable for variable, count in asking.items() if count > 1)
    return {op for ops in missing for op in ops if op.assigns in shared}


def _with_ancestors(wanted: set[Operation], operations: Sequence[Operation]) -> set[Operation]:
    """Return ``wanted``, and those of ``operations``, in the order of the graph, that they need."""
    found = set(wanted)
    needed = {tensor for op in wanted for tensor in op.inputs}
    for op in reversed(operations):
        if op in found or not needed.isdisjoint(op.outputs):
            found.add(op)
            needed.update(op.inputs)
    return found


def _assignments(operations: Iterable[Operation]) -> list[Operation]:
    return [op for op in operations if op.assigns is not None]


def _assigned(operations: Iterable[Operation]) -> set[Variable]:
    return {op.assigns for op in operations if op.assigns is not None}
