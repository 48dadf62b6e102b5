"""Evaluate operations in order; an engine that compiles does it once, while it traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.errors import add_note
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.near_names import with_article

Values = Mapping[Tensor, Any]
Conform = Callable[[str, Any, Any], Any]
ReadArgs = Callable[[Operation, Values], tuple[Any, ...]]


def evaluate(
    operations: Iterable[Operation],
    values: dict[Tensor, Any],
    variables: Mapping[Variable, Any],
    conform: Conform,
    read_args: ReadArgs | None = None,
) -> dict[Variable, Any]:
    """Put the outputs of ``operations`` into ``values``.

    An error out of a user's function carries a note that names the operation.

    Args:
        operations: What to compute, in this order; each has a function.
        values: The values known at the start, by tensor.
        variables: The values of variables when the run began.
        conform: ``conform(name, old, new)`` returns the new value of a variable as the session
            keeps it, or raises.
        read_args: Returns the arguments of an operation, where an engine puts something else in
            the place of constants; None: ``Operation.read_args``.

    Returns:
        The new values of variables.
    """
    fed = set(values)
    assigned: dict[Variable, Any] = {}
    for op in operations:
        assert op.fn is not None, "operations without a function are not evaluated"
        try:
            args = op.read_args(values) if read_args is None else read_args(op, values)
            if op.assigns is None:
                results = outputs_of(op, op.fn(*args))
            else:
                old = variables[op.assigns]
                new = op.fn(assigned.get(op.assigns, old), *args)
                assigned[op.assigns] = conform(op.assigns.op.name, old, new)
                results = (assigned[op.assigns],)
        except Exception as error:
            note_operation(error, op)
            raise
        for tensor, result in zip(op.outputs, results, strict=True):
            if tensor not in fed:
                values[tensor] = result
    return assigned


def note_operation(error: BaseException, op: Operation) -> None:
    """Note on ``error`` that it came out of ``op``."""
    add_note(error, f"in the operation {op.name!r} of the graph")


def outputs_of(op: Operation, result: Any) -> tuple[Any, ...]:
    """Return the value of each output of ``op``.

    Raises:
        ValueError: If ``result`` does not have as many values.
    """
    expected = len(op.outputs)
    if expected < 2:
        return (result,)[:expected]
    if not isinstance(result, tuple | list) or len(result) != expected:
        is_several = isinstance(result, tuple | list)
        got = f"{len(result)}" if is_several else with_article(type(result).__name__)
        raise ValueError(
            f"{op.name!r} has num_outputs={expected}: it must give a tuple of {expected} values, "
            f"got {got}"
        )
    return tuple(result)
