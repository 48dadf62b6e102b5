"""``TensorFlowGraph``: what hooks and session layers ask of a graph, of a ``tf.Graph``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import tensorflow as tf

from runhooks.engines.tensorflow.engine import ENGINE, TensorFlowEngine
from runhooks.engines.tensorflow.step_reads import StepReads
from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import entered

v1 = tf.compat.v1

_ATTRIBUTE = "runhooks_graph"


class TensorFlowGraph:
    """A ``tf.Graph`` as session layers see it; tensors and operations are TensorFlow's own.

    ``launched`` is the ``tf.Graph``. ``graph_of`` gives the one that belongs to it.
    """

    engine: TensorFlowEngine = ENGINE
    #: Nothing is changed in place beside the variables of a session.
    parts = None

    def __init__(self, graph: Any) -> None:
        self.launched = graph
        self.step_reads = StepReads(graph)
        #: What fetches and feeds were found to mean, kept for every session of this graph.
        self.plans: dict[Any, Any] = {}
        self._finalized_for_good = False
        self._users = 0

    def __repr__(self) -> str:
        return f"<TensorFlowGraph of {self.launched!r}>"

    @contextmanager
    def as_default(self) -> Iterator[TensorFlowGraph]:
        """Make it the default graph of this thread, TensorFlow's too, inside the block."""
        with entered(self), self.launched.as_default():
            yield self

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While somebody runs it. Being finalized in that time ends with the last who does."""
        if self._users == 0:
            self._finalized_for_good = self.launched.finalized
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and not self._finalized_for_good:
                getattr(self.launched, "_unsafe_unfinalize", lambda: None)()

    def finalize(self) -> None:
        """Make it read-only."""
        self.launched.finalize()

    @property
    def finalized(self) -> bool:
        """Whether it is read-only."""
        return bool(self.launched.finalized)

    def get_operations(self) -> list[Any]:
        """All operations."""
        return list(self.launched.get_operations())

    def as_graph_element(self, element: Any) -> Any:
        """The tensor or operation that ``element``, itself or its name, means.

        Raises KeyError, ValueError or TypeError as TensorFlow does.
        """
        return self.launched.as_graph_element(element)

    def add_to_collection(self, key: str, value: Any) -> None:
        """Add ``value`` to the collection ``key``."""
        self.launched.add_to_collection(key, value)

    def get_collection(self, key: str) -> list[Any]:
        """A copy of the collection ``key``."""
        found = list(self.launched.get_collection(key))
        if key == GraphKeys.GLOBAL_STEP and not found:  # it may go by its name alone
            step = v1.train.get_global_step(self.launched)
            return [] if step is None else [step]
        return found

    @property
    def launcher(self) -> Any:
        """How sessions of it are created."""
        # What these three make knows this class.
        from runhooks.engines.tensorflow.launcher import TensorFlowLauncher

        return TensorFlowLauncher(self)

    def evaluation_graph(self) -> Any:
        """An empty graph to evaluate in, as ``runhooks.hooks.evaluation_graph`` describes it."""
        from runhooks.engines.tensorflow.evaluation_graph import TensorFlowEvaluationGraph

        return TensorFlowEvaluationGraph()

    def stop_flag(self) -> Any:
        """The variable by which a chief stops its workers; the default graph is this one."""
        from runhooks.engines.tensorflow.stop_flag import StopFlag

        return StopFlag()

    def add(self, kind: str, *args: Any, name: str, **kwargs: Any) -> NoReturn:
        """Raise TypeError: only TensorFlow adds to it."""
        raise TypeError(
            f"the default graph is TensorFlow's, and {name!r} cannot be added to it: build it with "
            "TensorFlow, or enter a graph of runhooks, with rh.Graph().as_default()"
        )


def graph_of(graph: Any) -> TensorFlowGraph:
    """What stands for a ``tf.Graph``: always the same one."""
    found = getattr(graph, _ATTRIBUTE, None)
    if found is None:
        found = TensorFlowGraph(graph)
        setattr(graph, _ATTRIBUTE, found)  # they go together: the two are a circle
    return found


def current_graph() -> TensorFlowGraph | None:
    """TensorFlow's default graph, where TensorFlow builds graphs; None where it is eager."""
    if tf.executing_eagerly():
        return None
    graph = v1.get_default_graph()
    return None if getattr(graph, "building_function", False) else graph_of(graph)
