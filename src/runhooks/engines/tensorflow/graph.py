"""``TensorFlowGraph``: a ``tf.Graph`` as hooks and session layers see it.

TensorFlow's own sessions make runs too. So the number of an epoch, and a mean over one, are control
inputs of the operations that make the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from runhooks.engines.tensorflow.engine import ENGINE, TensorFlow
from runhooks.engines.tensorflow.fetches import (
    AnalyzedGraph,
    accumulated,
    analyzed,
    companion,
    elements_of,
    needed,
)
from runhooks.engines.tensorflow.session import ObservedSession, TensorFlowOpener
from runhooks.graph.base import BaseGraph, GraphKeys, entered
from runhooks.graph.engine import Kept
from runhooks.graph.nodes import cleaned_name
from runhooks.graph.sources import EPOCH, steps_per_epoch
from runhooks.trigger import no_epochs

v1 = tf.compat.v1


class TensorFlowGraph(BaseGraph):
    """A ``tf.Graph``, its ``launched``, as ``companion`` gives it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._epoch: Any = None
        self._means: Kept[Any, Any] = Kept()

    def __repr__(self) -> str:
        return f"<TensorFlowGraph of {self._graph!r}>"

    @property
    def engine(self) -> TensorFlow:
        return ENGINE

    @property
    def launched(self) -> Any:
        return self._graph

    @property
    def opener(self) -> TensorFlowOpener:
        return TensorFlowOpener(analyzed(self._graph))

    @contextmanager
    def as_default(self) -> Iterator[TensorFlowGraph]:
        with entered(self), self._graph.as_default():
            yield self

    def reopen(self) -> None:
        getattr(self._graph, "_unsafe_unfinalize", lambda: None)()

    def finalize(self) -> None:
        self._graph.finalize()

    @property
    def finalized(self) -> bool:
        return bool(self._graph.finalized)

    def name_scope(self, name: str) -> AbstractContextManager[str]:
        scope: AbstractContextManager[str] = self._graph.name_scope(name)
        return scope

    def get_operations(self) -> list[Any]:
        return list(self._graph.get_operations())

    def get_operation_by_name(self, name: str) -> Any:
        return self._graph.get_operation_by_name(name)

    def get_tensor_by_name(self, name: str) -> Any:
        return self._graph.get_tensor_by_name(name)

    def as_graph_element(self, element: Any) -> Any:
        try:
            return self._graph.as_graph_element(element)
        except KeyError as error:
            if element not in (EPOCH, f"{EPOCH}:0") or steps_per_epoch(self) is None:
                analyzed(self._graph).note_near_names(error, element)
                raise
            return self._number_of_epoch(EPOCH)

    def elements_fed(self, key: Any) -> list[Any]:
        return elements_of(self, [key])

    def add_epoch_mean(self, tensor: Any, weight: Any, name: str | None) -> Any:
        epoch = self._number_of_epoch("epoch_mean")
        value, weight = self._value(tensor), self._value(weight)
        name = name or f"epoch_mean/{cleaned_name(value.op.name, 'value')}"
        key = value.name, getattr(weight, "name", weight), name
        with self._at_top():
            return self._means.get_or_make(
                key, lambda: _add_mean(analyzed(self._graph), epoch, value, weight, name)
            )

    def _number_of_epoch(self, what: str) -> Any:
        steps = steps_per_epoch(self)
        if steps is None:
            raise no_epochs(what)
        graph = analyzed(self._graph)
        if self._epoch is None:
            if graph.global_step is None:
                raise ValueError("an epoch is a number of steps: the graph needs a global step")
            with self._at_top():
                self._epoch = tf.add(tf.identity(graph.global_step) // steps, 1, name=EPOCH)
        for op in graph.step_makers():
            if self._epoch.op not in op.control_inputs:
                op._add_control_input(self._epoch.op)
        return self._epoch

    @contextmanager
    def _at_top(self) -> Iterator[None]:
        with (
            self._graph.as_default(),
            self._graph.name_scope(None),
            self._graph.control_dependencies(None),
        ):
            yield

    def _value(self, element: Any) -> Any:
        if not isinstance(element, str | tf.Tensor | tf.Operation | tf.Variable):
            return element
        found = self._graph.as_graph_element(element)
        return found.outputs[0] if isinstance(found, tf.Operation) else found

    def resets_of(self, value: Any, update: Any) -> list[Any]:
        keys = v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.METRIC_VARIABLES
        found = {it.op.name: it for key in keys for it in self._graph.get_collection(key)}
        return [it.initializer for it in found.values() if accumulated(it, value, update)]

    def add_to_collection(self, key: str, value: Any) -> None:
        self._graph.add_to_collection(key, value)

    def get_collection(self, key: str) -> list[Any]:
        found = list(self._graph.get_collection(key))
        if key == GraphKeys.GLOBAL_STEP and not found:  # it may be known by its name alone
            step = v1.train.get_global_step(self._graph)
            return [] if step is None else [step]
        return found


def _add_mean(graph: AnalyzedGraph, epoch: Any, value: Any, weight: Any, name: str) -> Any:
    """As ``rh.epoch_mean``; ``epoch``: the tensor of its number."""
    steps = _steps_of(graph, value)
    if not steps:
        raise ValueError(
            f"no operation increases the global step and computes all that {value.name!r} needs: "
            "call epoch_mean when the graph has its train_op, one operation, such as "
            "tf.group(minimize, increase_global_step)"
        )
    weight = _examples(graph, value) if weight is None else weight
    weight = _number(weight, f"the weight of {value.name!r}")
    with graph.launched.name_scope(f"{name}/"):
        # Sum, weight and epoch.
        sums = v1.Variable(tf.zeros(3, tf.float64), trainable=False, use_resource=True, name="sums")
        added = tf.stack([weight * _number(value, repr(value.name)), weight])
        before, now = sums.read_value(), tf.cast(epoch, tf.float64)
        kept = tf.where(tf.equal(before[2], now), before[:2], tf.zeros_like(before[:2]))
        total = sums.assign(tf.concat([kept + added, [now]], 0), read_value=True)
    for op in steps:
        op._add_control_input(total.op)
    return tf.divide(total[0], total[1], name=name)


def _number(value: Any, what: str) -> Any:
    value = tf.cast(value, tf.float64)
    if value.shape.num_elements() not in (1, None):
        raise ValueError(f"{what} must be a single number, got a tensor of shape {value.shape}")
    return tf.reshape(value, [])


def _steps_of(graph: AnalyzedGraph, value: Any) -> list[Any]:
    """Return the first operations that make a step and need all data of ``value``."""
    behind = set(needed([value]))
    sources = {op for op in behind if _is_source(op)}
    followers: dict[Any, list[Any]] = {}
    for op in graph.launched.get_operations():
        for before in {*op.control_inputs, *(tensor.op for tensor in op.inputs)}:
            followers.setdefault(before, []).append(op)
    found, seen, waiting = [], set(), list(graph.step_makers())
    while waiting:
        op = waiting.pop(0)
        if op in seen:
            continue
        seen.add(op)
        if op not in behind and sources.issubset(needed([op])):
            found.append(op)
        else:
            waiting += followers.get(op, ())
    return found


def _examples(graph: AnalyzedGraph, value: Any) -> Any:
    """Return the length of the first array of data that ``value`` needs, or 1."""
    behind = set(needed([value]))
    data = [op for op in graph.launched.get_operations() if op in behind and _is_source(op)]
    shapes = [tf.shape(tensor) for op in data for tensor in op.outputs]
    return tf.concat([*shapes, [1]], 0)[0]


def _is_source(op: Any) -> bool:
    return op.type == "Placeholder" or "GetNext" in op.type or "Dequeue" in op.type


def current_graph() -> TensorFlowGraph | None:
    """Return TensorFlow's default graph; None where it is eager."""
    if tf.executing_eagerly():
        return None
    graph = v1.get_default_graph()
    return None if getattr(graph, "building_function", False) else companion(graph, TensorFlowGraph)


def known_graph(graph: Any) -> TensorFlowGraph | None:
    """Return a ``tf.Graph`` as hooks ask of it; None if it is none."""
    return companion(graph, TensorFlowGraph) if isinstance(graph, tf.Graph) else None


def known_session(session: Any) -> Any:
    """Return a session of a ``tf.Graph`` as hooks ask of it; None if it is none."""
    is_theirs = isinstance(getattr(session, "graph", None), tf.Graph)
    return companion(session, ObservedSession) if is_theirs else None
