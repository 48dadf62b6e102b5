"""Evaluate operations in order; an engine that compiles does it once, while it traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from runhooks.errors import add_note
from runhooks.graph.nodes import OWN_UPDATES, Operation, Tensor, Variable
from runhooks.near_names import with_article

Values = Mapping[Tensor, Any]
Conform = Callable[[str, Any, Any], Any]


class Ready(NamedTuple):
    """An operation made ready to be evaluated.

    Attributes:
        op: The operation.
        read: Returns its arguments, given the values of tensors.
        fn: Its function, or what an engine puts in its place.
        assigns: The variable that gets its result, or None.
        output: Its only output; None: it has none, or several.
    """

    op: Operation
    read: Callable[[Values], tuple[Any, ...]]
    fn: Callable[..., Any]
    assigns: Variable | None
    output: Tensor | None


def ready(
    operations: Iterable[Operation],
    reader: Callable[[Operation], Callable[[Values], tuple[Any, ...]]] | None = None,
) -> list[Ready]:
    """Make ``operations`` ready, each of which has a function.

    ``reader`` returns what reads the arguments of an operation, where an engine puts something else
    in the place of values; None: ``Operation.read_args``.
    """
    made = []
    for op in operations:
        assert op.fn is not None, "operations without a function are not evaluated"
        output = op.outputs[0] if len(op.outputs) == 1 else None
        read = op.read_args if reader is None else reader(op)
        made.append(Ready(op, read, op.fn, op.assigns, output))
    return made


def evaluate(
    operations: Iterable[Ready],
    conform: Conform,
    values: dict[Tensor, Any],
    variables: Mapping[Variable, Any],
) -> dict[Variable, Any]:
    """Put the outputs of ``operations`` into ``values``, but for those that are there.

    An error out of a user's function carries a note that names the operation.

    Args:
        operations: What to compute, in this order.
        conform: ``conform(name, old, new)`` returns the new value of a variable as the session
            keeps it, or raises.
        values: The values known at the start, by tensor.
        variables: The values of variables when the run began.

    Returns:
        The new values of variables.
    """
    assigned: dict[Variable, Any] = {}
    for op, read, fn, variable, output in operations:
        try:
            if variable is None:
                result = fn(*read(values))
            else:
                old = variables[variable]
                result = fn(assigned.get(variable, old), *read(values))
                if op.type not in OWN_UPDATES:
                    result = conform(variable.op.name, old, result)
                assigned[variable] = result
            if output is not None:
                values.setdefault(output, result)
            elif op.outputs:
                for tensor, value in zip(op.outputs, outputs_of(op, result), strict=True):
                    values.setdefault(tensor, value)
        except Exception as error:
            note_operation(error, op)
            raise
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
