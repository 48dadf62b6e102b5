"""``TensorFlowEvaluationGraph``: a ``tf.Graph`` to evaluate in, beside that of the training."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from runhooks.engines.tensorflow.graph import graph_of
from runhooks.engines.tensorflow.sources import sources_of

v1 = tf.compat.v1


class TensorFlowEvaluationGraph:
    """As ``runhooks.hooks.evaluation_graph.EvaluationGraph``."""

    def __init__(self) -> None:
        self.graph = graph_of(tf.Graph())
        v1.train.get_or_create_global_step(self.graph.launched)
        self._starts: list[Any] = []
        self._fed: dict[str, Any] = {}
        self._assigns: dict[str, Any] = {}

    def draw(self, given: Any) -> tuple[Any, Any]:
        """The elements of a dataset, or tensors: a pair of features and labels, or features."""
        if isinstance(given, tf.data.Dataset):
            iterator = v1.data.make_initializable_iterator(given)
            self._starts.append(iterator.initializer)
            given = iterator.get_next()
        if not isinstance(given, list | tuple):
            return given, None
        if len(given) != 2:
            raise ValueError(
                "input_fn must give features and labels, a pair, or a dataset of such pairs, got "
                f"{given!r}"
            )
        return given[0], given[1]

    def draws(self, fetches: Any) -> bool:
        """Whether they draw from a dataset or a queue."""
        return bool(sources_of(self.graph, fetches))

    def complete(self) -> None:
        """Add what gives the variables their values."""
        for variable in v1.global_variables():
            name = variable.op.name
            self._fed[name] = v1.placeholder(variable.dtype.base_dtype, variable.shape)
            self._assigns[name] = v1.assign(variable, self._fed[name]).op

    def take_over(self, session: Any, training: Any, names: Collection[str]) -> None:
        """By the memory of this process; what is no variable is not taken over: ValueError."""
        graph = training.graph
        others = graph.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)
        if others:
            raise ValueError(
                "the evaluation does not support saveables other than global variables, got "
                f"{[other.name for other in others]}: it would begin without what they hold"
            )
        variables = {it.op.name: it for it in graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)}
        values = training.run({name: graph.as_graph_element(variables[name]) for name in names})
        for name, value in values.items():
            if not self._fed[name].shape.is_compatible_with(value.shape):
                raise ValueError(
                    f"the variable {name!r} must be of one shape in the training and in the "
                    f"evaluation, got {value.shape} and {self._fed[name].shape}"
                )
        feed_dict = {self._fed[name]: value for name, value in values.items()}
        session.run([self._assigns[name] for name in values], feed_dict)

    def start_inputs(self, session: Any, coord: Any) -> None:
        """Let the datasets begin anew, and the threads that fill queues."""
        session.run(self._starts)
        for runner in self.graph.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)
