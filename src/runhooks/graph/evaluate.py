"""Evaluate operations in order; an engine that compiles does it once, while it traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable

Values = Mapping[Tensor, Any]
Conform = Callable[[str, Any, Any], Any]
ReadArgs = Callable[[Operation, Values], tuple[Any, ...]]


def read_args(op: Operation, values: Values) -> tuple[Any, ...]:
    """The arguments of ``op``: the values of its tensors, and its constants as they are."""
    return op.read_args(values)


def evaluate(
    operations: Iterable[Operation],
    values: dict[Tensor, Any],
    variables: Mapping[Variable, Any],
    conform: Conform,
    read_args: ReadArgs = read_args,
) -> dict[Variable, Any]:
    """Put the outputs of ``operations`` into ``values``; return the variables' new values.

    ``values`` holds what is known when it starts. ``conform(name, old, new)`` returns a new value
    of a variable as the session keeps it, or raises. ``read_args`` may put something else in the
    place of constants. An error out of a user's function carries a note that names the operation.
    """
    fed = set(values)
    assigned: dict[Variable, Any] = {}
    for op in operations:
        try:
            if op.assigns is None:
                results = parts(op, _function(op)(*read_args(op, values)))
            else:
                old = variables[op.assigns]
                latest = assigned.get(op.assigns, old)
                new = _function(op)(latest, *read_args(op, values))
                assigned[op.assigns] = conform(op.assigns.op.name, old, new)
                results = (assigned[op.assigns],)
        except Exception as error:
            error.add_note(f"in the operation {op.name!r} of the graph")
            raise
        values.update((t, r) for t, r in zip(op.outputs, results, strict=True) if t not in fed)
    return assigned


def _function(op: Operation) -> Callable[..., Any]:
    assert op.fn is not None, "operations without a function are not evaluated"
    return op.fn


def parts(op: Operation, result: Any) -> tuple[Any, ...]:
    """The value of each output of ``op``. Raises ValueError if ``result`` has not as many."""
    expected = len(op.outputs)
    if expected < 2:
        return (result,)[:expected]
    if not isinstance(result, tuple | list) or len(result) != expected:
        got = f"{len(result)}" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise ValueError(
            f"{op.name!r} has num_outputs={expected}: it must give a tuple of {expected} values, "
            f"got {got}"
        )
    return tuple(result)
