"""The effects of a run beyond the values it computes: inputs drawn from, state changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runhooks.graph.base import BaseGraph, RunEffects, StepPart
from runhooks.graph.global_step import get_global_step
from runhooks.graph.plan import elements_of, needed_for
from runhooks.graph.tensor import CAPTURES, Effect, Operation


def effects_of(graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any] = ()) -> RunEffects:
    """Return the effects of ``fetches`` when ``feed_keys``, and all placeholders, are fed.

    Raises as ``make_plan`` does.
    """
    needed = needed_for(graph, fetches, feed_keys)
    return RunEffects(
        inputs=tuple(op for op in needed if op.type == "Inputs"),
        assignments=tuple(op for op in needed if op.assigns is not None),
        steps=frozenset(op for op in needed if op.effect is Effect.STEP),
        step_captures=frozenset(op for op in needed if op.effect is Effect.STEP_CAPTURE),
        captures=frozenset(op for op in needed if op.effect in CAPTURES),
        reads=frozenset(op for op in needed if op.effect is Effect.READ),
    )


def step_part_of(graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
    """Return what a run of ``fetches`` does to the global step. Raises as ``make_plan`` does."""
    step = get_global_step(graph)
    effects = effects_of(graph, fetches, feed_keys)
    if step is None or any(op.assigns is step for op in effects.assignments):
        return StepPart.WHOLE
    if not any(op.assigns is step for op in graph.get_operations()):
        return StepPart.WHOLE  # nothing tells one run from another
    return StepPart.PART if effects.steps else StepPart.NONE


def step_not_named(
    graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any]
) -> tuple[Operation, Operation] | None:
    """Return a step that ``fetches`` make only by asking for one of its outputs, and that output.

    None if there is no such step. A step is named by its own operation, and by operations without
    a value, such as groups.
    """
    needed = needed_for(graph, fetches, feed_keys)
    steps = {op for op in needed if op.effect is Effect.STEP}
    if not steps:
        return None
    elements = elements_of(graph, fetches)
    named = [e for e in elements if isinstance(e, Operation) or e.op.effect is Effect.STEP]
    steps -= effects_of(graph, named, feed_keys).steps
    outputs = [op for op in needed if op.effect is Effect.STEP_OUTPUT and op.inputs[0].op in steps]
    return (outputs[0].inputs[0].op, outputs[0]) if outputs else None
