"""``EvaluationGraph``: a graph to evaluate in, beside that of the training."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from runhooks.engines.engine import Engine
from runhooks.graph import Graph, inputs
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.plan import inputs_of
from runhooks.session.session import Session


class EvaluationGraph(Protocol):
    """What an evaluation leaves to the kind of a graph. ``graph`` has a global step."""

    graph: Any

    def draw(self, given: Any) -> tuple[Any, Any]:
        """Add the features and labels of ``given``, which an ``input_fn`` has returned."""
        ...

    def draws(self, fetches: Any) -> bool:
        """Whether ``fetches`` draw from an input, and so may come to its end."""
        ...

    def complete(self) -> None:
        """Add what is lacking when the model is there; the graph is final then."""
        ...

    def take_over(self, session: Any, training: Any, names: Collection[str]) -> None:
        """Give the variables of these names, in ``session``, the values they have in the training.

        Raises ValueError if they do not fit.
        """
        ...

    def start_inputs(self, session: Any, coord: Any) -> None:
        """Let the inputs begin, in a new session; threads of theirs under ``coord``."""
        ...


class OwnEvaluationGraph:
    """For graphs that runhooks computes."""

    def __init__(self, engine: Engine) -> None:
        self.graph = Graph(engine)
        get_or_create_global_step(self.graph)

    def draw(self, given: Any) -> tuple[Any, Any]:
        features, labels = inputs(given, num_outputs=2)
        return features, labels

    def draws(self, fetches: Any) -> bool:
        return bool(inputs_of(self.graph, fetches))

    def complete(self) -> None:
        """Nothing is lacking."""

    def take_over(self, session: Session, training: Any, names: Collection[str]) -> None:
        session.load(training.snapshot(), only=names)

    def start_inputs(self, session: Session, coord: Any) -> None:
        """Those of a new session begin by themselves."""


def evaluation_graph(training: Any) -> EvaluationGraph:
    """An empty one, of the kind and the engine of the graph ``training``."""
    make = getattr(training, "evaluation_graph", None)  # of a graph that a framework computes
    return OwnEvaluationGraph(training.engine) if make is None else make()
