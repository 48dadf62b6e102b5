"""Places each operation of a run: on the host before the engine, in the engine, or after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from runhooks.graph.tensor import Operation, Placement, Tensor, Variable


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
