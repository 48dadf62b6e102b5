"""What an evaluation draws from, held against what the training does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.contract import SessionRunArgs
from runhooks.graph import Graph, GraphKeys, Operation
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.steps import steps_of


def inputs_apart(
    graph: Any, fetches: Any, feed_dict: Mapping[Any, Any] | None, training: SessionRunArgs | None
) -> list[Operation] | None:
    """The inputs that ``fetches`` draw from; None if the graph is not ours, and nobody can tell.

    ``training``: what the training asks of a run, if that is known. Raises ValueError if both draw
    from one input, or if ``fetches`` change a saved variable: the training would go on from there.
    """
    if not isinstance(graph, Graph):
        return None
    plan = make_plan(graph, fetches, feed_dict or ())
    _check_variables(graph, plan)
    if training is not None:
        theirs = make_plan(graph, training.fetches, training.feed_dict or ()).inputs
        for op in plan.inputs:
            if op in theirs:
                raise ValueError(
                    f"metrics draw from the input {op.name!r}, and so does the training, which "
                    "would miss what they take: give feeds, or compute them from an input of their "
                    "own"
                )
    return list(plan.inputs)


def check_no_step(graph: Any, fetches: Any) -> None:
    """Raise ValueError if ``fetches`` are there only when a step of the training is made."""
    if getattr(graph, "parts", None) is None:
        return
    made, captured = steps_of(graph, fetches)
    if made or captured:
        name = min(op.name for op in made or captured)
        raise ValueError(
            f"metrics need {name!r}, a step or what is captured in one, and an evaluation must "
            "not train: compute them with a function of your own, rh.call(evaluate, ...)"
        )


def _check_variables(graph: Graph, plan: Plan) -> None:
    saved = set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
    for op in (*plan.head, *plan.body.operations, *plan.tail):
        if op.assigns is not None and op.assigns in saved:
            raise ValueError(
                f"metrics change the variable {op.assigns.op.name!r}, which belongs to the state "
                "of the training: an evaluation may change local variables alone"
            )
