"""``OwnEvaluationGraph``: a graph of runhooks to evaluate in, beside the training's graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from runhooks.contract import RawSession
from runhooks.graph import Graph, inputs
from runhooks.graph.base import BaseGraph, EvaluationGraph
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.graph import own_graph


class OwnEvaluationGraph(EvaluationGraph):
    """An empty graph on the engine of the graph ``training``."""

    def __init__(self, training: Graph) -> None:
        self.graph = Graph(training.engine)
        get_or_create_global_step(self.graph)

    def draw(self, given: Any) -> tuple[Any, Any]:
        features, labels = inputs(given, num_outputs=2)
        return features, labels

    def draws(self, fetches: Any) -> bool:
        return bool(self.graph.effects_of(fetches).inputs)

    def copy_variables(
        self, session: RawSession, training: RawSession, names: Collection[str]
    ) -> None:
        session.load(training.snapshot(), only=names)


def evaluation_graph(training: BaseGraph) -> EvaluationGraph:
    """Return an empty graph of the kind and the engine of the graph ``training``."""
    made = training.evaluation_graph()
    if made is not None:
        return made
    return OwnEvaluationGraph(own_graph(training))
