"""``Plan``: what fetches and feeds need, and who computes it.

The host draws from the inputs and computes the head, the engine the body, the host the tail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

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

_HEAD, _BODY, _TAIL = range(3)  # the phases of a run

_Operations: TypeAlias = tuple[Operation, ...]


def _placed(
    operations: Sequence[Operation], fed: set[Tensor]
) -> tuple[_Operations, _Operations, _Operations]:
    """Divide ``operations``, in order, into head, body and tail; ValueError: it cannot be done.

    What must be on the host is computed as soon as its inputs are known. Arithmetic goes to the
    engine, unless it needs a value of the tail or the host needs it. If both need it, both compute
    it, so that what the engine computes does not depend on what else is asked for.
    """
    phases = _earliest(operations, fed)
    on_host = (op for op in operations if op.placement is Placement.HOST or phases[op] == _TAIL)
    free = [op for op in operations if op.placement is Placement.EITHER and phases[op] == _HEAD]
    for_host = _ancestors(_inputs(on_host), free)
    phases.update((op, _BODY) for op in free if op not in for_host)
    taken = _inputs(op for op in operations if phases[op] == _BODY)
    twice = _ancestors(taken, [op for op in free if op in for_host])
    return (
        tuple(op for op in operations if phases[op] == _HEAD),
        tuple(op for op in operations if phases[op] == _BODY or op in twice),
        tuple(op for op in operations if phases[op] == _TAIL),
    )


def _earliest(operations: Sequence[Operation], fed: set[Tensor]) -> dict[Operation, int]:
    phases: dict[Operation, int] = {}
    last_assigned: dict[Variable, int] = {}

    def phase_of(tensor: Tensor) -> int:
        if isinstance(tensor, Variable) and tensor not in fed:
            return _HEAD if tensor.on_host else _BODY
        # What is not computed is drawn from an input.
        return _HEAD if tensor in fed else phases.get(tensor.op, _HEAD)

    for op in operations:
        phase = max(map(phase_of, op.inputs), default=_HEAD)
        if op.placement is Placement.ENGINE:
            if phase == _TAIL:
                raise ValueError(
                    f"{op.name!r} takes a value that the host computes after the engine: fetch "
                    "that value, and feed it to the next run"
                )
            phase = _BODY
        elif op.placement is Placement.HOST and phase == _BODY:
            phase = _TAIL
        if op.assigns is not None:  # assignments to one variable keep their order
            phase = max(phase, last_assigned.get(op.assigns, _HEAD))
            last_assigned[op.assigns] = phase
        phases[op] = phase
    return phases


def _ancestors(tensors: Iterable[Tensor], operations: Sequence[Operation]) -> set[Operation]:
    """Return those of ``operations``, in the order of the graph, that ``tensors`` need."""
    found: set[Operation] = set()
    needed = set(tensors)
    for op in reversed(operations):
        if not needed.isdisjoint(op.outputs):
            found.add(op)
            needed.update(op.inputs)
    return found


CALLER = "the caller of run"

AnyTensor = TypeVar("AnyTensor", bound=Tensor)


@dataclass(frozen=True)
class Party:
    """What the caller of a run, a hook, or the tail for one of them, needs of the body."""

    operations: tuple[Operation, ...]
    fetches: tuple[Tensor, ...]
    name: str = field(default=CALLER, compare=False)


@dataclass(frozen=True)
class Body:
    """What an engine computes; all but ``parties`` are in the order of the graph.

    Attributes:
        operations: What to compute.
        given: The tensors whose values the engine gets.
        fetches: Those whose values it returns.
        assigned: The variables that get new values.
        kept: Those that are only read.
        donate: Whether old values may be given up; False if the tail, which may fail, assigns some.
        parties: The caller of the run, and then hooks.
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
        return not (self.operations or self.fetches)


def part_of(
    body: Body, operations: Iterable[Operation], fetches: Iterable[Tensor], *, donate: bool = False
) -> Body:
    kept = tuple(operations)
    known, made = set(body.given), _outputs(kept)
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
    """One run: what is fed, in the order of the feed_dict, drawn and computed.

    ``counters`` are the variables on the host that are read. ``result`` is the structure of the
    fetches, with None for operations; ``fetches`` are its tensors.
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

    TypeError: something cannot be fetched or fed. ValueError: an unknown name, an element of
    another graph, a tensor that is fed twice, a placeholder that is not.
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
    fetched = frozenset(nest.tensors(wanted))
    needed = _needed_in_run(graph, nest.leaves(wanted), fed)
    head, body, tail = _placed([op for op in needed if op.fn is not None], fed)
    by_party = [(CALLER, wanted)]
    if isinstance(fetches, nest.FetchList):
        by_party = list(zip(fetches.parties, wanted, strict=True))
    needed_by = [
        (name, part, set(_needed_in_run(graph, nest.leaves(part), fed))) for name, part in by_party
    ]
    return Plan(
        feeds=feeds,
        inputs=tuple(_drawn(graph, needed)),
        counters=tuple(v for v in _variables(needed) if v.on_host and v not in fed),
        head=head,
        body=_body(head, body, tail, needed, fed, fetched, needed_by),
        tail=tail,
        fetches=fetched,
        result=nest.map_leaves(lambda it: it if isinstance(it, Tensor) else None, wanted),
    )


def needed_for(graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Operation]:
    """Return what ``fetches`` need when ``feed_keys``, and placeholders, are fed."""
    placeholders = _outputs(op for op in graph.get_operations() if op.type == "Placeholder")
    return _needed(elements_of(graph, fetches), placeholders.union(_fed_tensors(graph, feed_keys)))


def elements_of(graph: BaseGraph, fetches: Any) -> list[Tensor | Operation]:
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
            end = ":0" if key.endswith(":0") else ""
            near = suggestion(key, [name + end for name in names])
            near = near or f"; its placeholders are {[name + end for name in names]}"
            given = (it.name if isinstance(it, Tensor) else str(it) for it in keys)
            fed = {it.removesuffix(":0") for it in given}
            missing = ", ".join(repr(name + end) for name in names if name not in fed)
            near += f"; not fed: {missing}" if missing else ""
            raise ValueError(f"feed_dict: nothing is named {key!r} in the graph{near}") from None
        if not isinstance(tensor, Tensor):
            raise TypeError(f"feed_dict: {key!r} is an operation; feed a tensor, such as 'name:0'")
        if tensor in feeds:
            raise ValueError(f"feed_dict: {tensor.name!r} is fed twice")
        if tensor.op.effect in READS_OBJECTS:
            raise ValueError(
                f"feed_dict: {tensor.name!r} is of an object and cannot be fed: change the object"
            )
        feeds[tensor] = None
    return tuple(feeds)


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
            names = sorted(tensor.name.removesuffix(":0") for tensor in fed)
            raise ValueError(
                f"placeholder {part.outputs[0].name!r}, which {needed_by} needs, is not fed: "
                f"give it a value in feed_dict{f', which has {names}' if fed else ''}"
            )
        found[part] = None
        behind: list[Tensor | Operation] = [*part.inputs, *part.control_inputs]
        waiting += [(it, repr(part.name)) for it in behind]
    return sorted(found, key=lambda op: op.number)


def _needed_in_run(
    graph: BaseGraph, elements: Iterable[Tensor | Operation], fed: set[Tensor]
) -> list[Operation]:
    elements = list(elements)
    needed = _needed(elements, fed)
    updates = graph.get_collection(GraphKeys.STEP_UPDATES)
    if not updates or not _makes_step(graph, needed):
        return needed
    others = set(graph.get_operations()).difference(updates)
    known = dict.fromkeys((tensor.op for tensor in _inputs(_assignments(others))), False)
    known.update(dict.fromkeys(needed, True))
    return _needed([*elements, *(op for op in updates if _belongs(op, known, fed))], fed)


def _belongs(op: Operation, known: dict[Operation, bool], fed: set[Tensor]) -> bool:
    """Return whether the run has all inputs, feeds and steps that ``op`` needs."""
    if op not in known:
        is_new = op.type in ("Inputs", "Placeholder") or op.effect is Effect.STEP
        known[op] = not is_new and all(
            tensor in fed or _belongs(tensor.op, known, fed) for tensor in op.inputs
        )
    return known[op]


def _drawn(graph: BaseGraph, needed: Sequence[Operation]) -> list[Operation]:
    """Return what a run draws from; in one that makes no step, the epoch as it is now."""
    is_step = _makes_step(graph, needed)
    return [
        op.args[0] if op.type == "Epoch" and not is_step else op
        for op in needed
        if op.type in ("Inputs", "Epoch")
    ]


def _makes_step(graph: BaseGraph, operations: Iterable[Operation]) -> bool:
    steps = graph.get_collection(GraphKeys.GLOBAL_STEP)
    return any(op.effect is Effect.STEP or op.assigns in steps for op in operations)


def _variables(operations: Iterable[Operation]) -> list[Variable]:
    return [v for op in operations for v in op.outputs if isinstance(v, Variable)]


def _inputs(operations: Iterable[Operation]) -> set[Tensor]:
    return {tensor for op in operations for tensor in op.inputs}


def _outputs(operations: Iterable[Operation]) -> set[Tensor]:
    return {tensor for op in operations for tensor in op.outputs}


def _ordered(tensors: Iterable[AnyTensor]) -> tuple[AnyTensor, ...]:
    # Whatever was asked first, equal bodies are compiled once.
    return tuple(sorted(tensors, key=lambda t: (t.op.number, t.index)))


def _body(
    head: _Operations,
    body: _Operations,
    tail: _Operations,
    needed: Iterable[Operation],
    fed: set[Tensor],
    fetched: frozenset[Tensor],
    needed_by: Iterable[tuple[str, Any, set[Operation]]],
) -> Body:
    read = [v for v in _variables(needed) if not v.on_host]
    assigned = _assigned(body)
    own = _outputs(body).union(read).difference(fed)
    returned = own - _outputs(head)

    def asked(fetched: Iterable[Tensor], tail: Iterable[Operation]) -> tuple[Tensor, ...]:
        return _ordered(returned & _inputs(tail).union(fetched))

    return Body(
        operations=body,
        given=_ordered(_inputs(body) - own),
        fetches=asked(fetched, tail),
        assigned=_ordered(assigned),
        kept=_ordered(set(read) - assigned),
        donate=not _assignments(tail),
        parties=tuple(
            Party(
                tuple(op for op in body if op in its),
                asked(nest.tensors(part), its.intersection(tail)),
                name,
            )
            for name, part, its in needed_by
        ),
    )


def core_of(body: Body) -> Body | None:
    """Return what ``body`` computes for the first party that assigns variables: a training step.

    It has all that this party asks for, but for parts of what calls return, and other parties'
    assignments to variables that several assign. Its fetches are the values of
    variables, and arithmetic, that the party asks for.
    """
    first = stepping_party(body)
    if first is None:
        return None
    kept = {op for op in first.operations if not is_arithmetic(op)}
    needed = {t for t in first.fetches if not isinstance(t.op.fn, Part) or _is_of_variable(t)}
    kept |= _ancestors(needed | _inputs(kept), first.operations)
    while missing := _shared_assignments(body.parties, kept):
        kept |= missing | _ancestors(_inputs(missing), body.operations)
    operations = [op for op in body.operations if op in kept]
    taken = _inputs(operations)
    fetches = [t for t in first.fetches if _is_of_variable(t) or _is_result(t, taken)]
    return part_of(body, operations, fetches, donate=body.donate)


def stepping_party(body: Body) -> Party | None:
    return next((party for party in body.parties if _assignments(party.operations)), None)


def is_arithmetic(op: Operation) -> bool:
    """Return whether ``op`` is computed only where its value is needed."""
    return op.placement is Placement.EITHER and op.assigns is None


def _is_of_variable(tensor: Tensor) -> bool:
    """Return whether it is a variable, its new value, or a part of these."""
    while isinstance(tensor.op.fn, Part):
        tensor = tensor.op.inputs[0]
    return isinstance(tensor, Variable) or tensor.op.assigns is not None


def _is_result(tensor: Tensor, taken: set[Tensor]) -> bool:
    is_part = isinstance(tensor.op.fn, Part)
    return is_arithmetic(tensor.op) and not is_part and tensor not in taken


def _shared_assignments(parties: Iterable[Party], kept: set[Operation]) -> set[Operation]:
    """Return assignments to have in the core beside ``kept``, to keep their order."""
    assigned = _assigned(kept)
    missing = [set(_assignments(party.operations)) - kept for party in parties]
    asking = Counter(variable for ops in missing for variable in _assigned(ops))
    shared = assigned.union(variable for variable, count in asking.items() if count > 1)
    return {op for ops in missing for op in ops if op.assigns in shared}


def _assignments(operations: Iterable[Operation]) -> list[Operation]:
    return [op for op in operations if op.assigns is not None]


def _assigned(operations: Iterable[Operation]) -> set[Variable]:
    return {op.assigns for op in operations if op.assigns is not None}
