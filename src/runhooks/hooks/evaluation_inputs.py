"""What an evaluation draws from, held against what the training does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.contract import SessionRunArgs
from runhooks.graph import Graph, GraphKeys
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.steps import steps_of


def inputs_apart(
    session: Any, fetches: Any, feed_dict: Mapping[Any, Any] | None, training: SessionRunArgs | None
) -> list[Any]:
    """The inputs that ``fetches`` draw from; of TensorFlow, iterators and queues.

    ``training``: what the training asks of a run, if that is known. Raises ValueError if both draw
    from one input, or if ``fetches`` change a saved variable: the training would go on from there.
    An iterator that can be switched to other data, or a queue, may serve both.
    """
    inputs = _inputs_of(session, fetches, feed_dict)
    if isinstance(session.graph, Graph):
        _check_variables(session.graph, make_plan(session.graph, fetches, feed_dict or ()))
    if training is None or not inputs:
        return inputs
    theirs = _inputs_of(session, training.fetches, training.feed_dict)
    serves_both = getattr(session, "serves_both", lambda op: False)
    for op in inputs:
        if op in theirs and not serves_both(op):
            raise ValueError(
                f"metrics draw from the input {op.name!r}, and so does the training, which would "
                "miss what they take: give feeds, or compute them from an input of their own"
            )
    return inputs


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


def _inputs_of(session: Any, fetches: Any, feed_dict: Mapping[Any, Any] | None) -> list[Any]:
    sources_of = getattr(session, "sources_of", None)  # of a graph that a framework computes
    if sources_of is not None:
        return list(sources_of(fetches, feed_dict or ()))
    return list(make_plan(session.graph, fetches, feed_dict or ()).inputs)


def _check_variables(graph: Graph, plan: Plan) -> None:
    saved = set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
    for op in (*plan.head, *plan.body.operations, *plan.tail):
        if op.assigns is not None and op.assigns in saved:
            raise ValueError(
                f"metrics change the variable {op.assigns.op.name!r}, which belongs to the state "
                "of the training: an evaluation may change local variables alone"
            )
