"""What hooks compute once more when the loop has ended: it must need nothing but the variables."""

from __future__ import annotations

from typing import Any

from runhooks.graph.graph import Graph
from runhooks.graph.parts import CAPTURE, GRADIENT, STEP
from runhooks.graph.plan import make_plan


def check_for_end(graph: Any, fetches: Any) -> None:
    """Raise ValueError if ``fetches`` cannot be computed when the loop has ended.

    There is nothing to feed by then. And the state must stay as it is: an element drawn from an
    input, or a change of a variable, would make a run that goes on from here another one.
    """
    if not isinstance(graph, Graph):
        return
    try:
        plan = make_plan(graph, fetches, ())
    except ValueError as error:
        raise ValueError(f"at_end: {error}; {_FIX}") from None
    operations = (*plan.head, *plan.body.operations, *plan.tail)
    changed = [op.assigns.op.name for op in operations if op.assigns is not None]
    changed += [op.name for op in operations if op.type == STEP]
    captured = [op.name for op in operations if op.type in (CAPTURE, GRADIENT)]
    drawn = [op.name for op in plan.inputs]
    if drawn or changed or captured:
        if drawn:
            what = f"draws from the input {drawn[0]!r}"
        elif changed:
            what = f"changes {changed[0]!r}"
        else:
            what = f"is captured while a step is made: {captured[0]!r}"
        raise ValueError(f"at_end: what is to be computed at the end {what}; {_FIX}")


_FIX = (
    "at the end nothing can be fed, drawn or changed: if the last step is known, give "
    "Trigger(on_steps=[last_step]) in place of at_end"
)
