"""``core_of``: the part of a run that does not depend on which hooks are due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runhooks.graph.each_step import is_of_each_step
from runhooks.graph.part import Part
from runhooks.graph.plan import Body, Party, part_of
from runhooks.graph.tensor import Operation, Placement, Tensor, Variable


def core_of(body: Body) -> Body | None:
    """Return what ``body`` computes for the first party that assigns variables: a training step.

    All that this party asks for is in it, but for parts of what calls return, which can be taken
    afterwards. Of other parties' assignments it has those to variables that several parties assign,
    and those that are made in each step.
    Its fetches are what the party asks for beyond what calls return: values of variables, and
    arithmetic. None if no party assigns any.
    """
    first = stepping_party(body)
    if first is None:
        return None
    kept = _without_last_parts(first)
    kept |= with_ancestors(set(filter(is_of_each_step, body.operations)), body.operations)
    while missing := _shared_assignments(body.parties, kept):
        kept |= with_ancestors(missing, body.operations)
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
    assigned = {op.assigns for op in kept if op.assigns is not None}
    by_variable: dict[Variable, set[Operation]] = {}
    asking: dict[Variable, int] = {}
    for party in parties:
        missing = [op for op in _assignments(party.operations) if op not in kept]
        for variable in {op.assigns for op in missing if op.assigns is not None}:
            asking[variable] = asking.get(variable, 0) + 1
        for op in missing:
            if op.assigns is not None:
                by_variable.setdefault(op.assigns, set()).add(op)
    return {
        op
        for variable, operations in by_variable.items()
        if variable in assigned or asking[variable] > 1
        for op in operations
    }


def with_ancestors(wanted: set[Operation], operations: Sequence[Operation]) -> set[Operation]:
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
