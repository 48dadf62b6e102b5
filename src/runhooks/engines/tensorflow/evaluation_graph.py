"""A ``tf.Graph`` to evaluate in beside that of the training, and the flag that stops workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from runhooks.engines.tensorflow.sources import sources_of
from runhooks.graph.base import BaseGraph, EvaluationGraph, StopFlag

v1 = tf.compat.v1


class TensorFlowEvaluationGraph(EvaluationGraph):
    """An empty ``tf.Graph`` with a global step."""

    def __init__(self, graph: BaseGraph) -> None:
        self.graph = graph
        v1.train.get_or_create_global_step(self.graph.launched)
        self._starts: list[Any] = []
        self._fed: dict[str, Any] = {}
        self._assigns: dict[str, Any] = {}

    def draw(self, given: Any) -> tuple[Any, Any]:
        # Elements of a dataset, or tensors: a pair of features and labels, or features alone.
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
        return bool(sources_of(self.graph, fetches))

    def complete(self) -> None:
        for variable in v1.global_variables():
            name = variable.op.name
            self._fed[name] = v1.placeholder(variable.dtype.base_dtype, variable.shape)
            self._assigns[name] = v1.assign(variable, self._fed[name]).op

    def copy_variables(self, session: Any, training: Any, names: Collection[str]) -> None:
        """Copy the values through the memory of this process."""
        graph = training.graph
        others = graph.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)
        if others:
            raise ValueError(
                "the evaluation does not support saveables other than global variables, got "
                f"{[other.name for other in others]}: their values would be missing in it"
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
        session.run(self._starts)
        for runner in self.graph.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)


_SCOPE = "signal_early_stopping"


class TensorFlowStopFlag(StopFlag):
    """A variable of the default graph that all sessions of a cluster share; made once a graph.

    Its name is the one that ``tf.estimator`` gave it: each restores what the other has saved.
    """

    def __init__(self) -> None:
        step = v1.train.get_global_step()
        # On the device where the other processes look for it, whatever device scope this is in.
        with tf.device("" if step is None else step.device):
            with v1.variable_scope(_SCOPE, reuse=v1.AUTO_REUSE):
                variable = v1.get_variable(
                    "STOP", [], tf.bool, v1.zeros_initializer(), trainable=False
                )
            self.tensor = v1.get_default_graph().as_graph_element(variable)
            self._set = _assign(variable, "set", True)
            self._clear = _assign(variable, "clear", False)

    def set(self, session: Any) -> None:
        session.run(self._set)

    def clear(self, session: Any) -> None:
        session.run(self._clear)


def _assign(variable: Any, name: str, value: bool) -> Any:
    name = f"{variable.op.name}/{name}"
    try:
        return v1.get_default_graph().get_operation_by_name(name)
    except KeyError:
        with tf.name_scope(f"{variable.op.name}/"):
            return v1.group(v1.assign(variable, value), name=name.rpartition("/")[2])
