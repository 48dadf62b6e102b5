"""``TensorFlowGraph``: a ``tf.Graph`` as hooks and session layers see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from runhooks.contract import RawSession
from runhooks.engines.tensorflow.engine import ENGINE, TensorFlow
from runhooks.engines.tensorflow.epochs import add_epoch, add_epoch_mean, put_before_steps
from runhooks.engines.tensorflow.fetches import accumulated, analyzed, elements_of
from runhooks.engines.tensorflow.opener import TensorFlowOpener
from runhooks.engines.tensorflow.session import is_session, observed
from runhooks.graph.base import BaseGraph, GraphKeys, entered
from runhooks.graph.engine import Kept
from runhooks.graph.epochs import EPOCH, steps_per_epoch
from runhooks.graph.nodes import cleaned_name
from runhooks.trigger import no_epochs

v1 = tf.compat.v1


_ATTRIBUTE = "runhooks_graph"


class TensorFlowGraph(BaseGraph):
    """A ``tf.Graph``, its ``launched``; tensors and operations are TensorFlow's own.

    ``graph_of`` gives the one that belongs to a ``tf.Graph``.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._finalized_for_good = False
        self._users = 0
        self._epoch: Any = None  # the tensor of its number
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
        """Make it the default graph of this thread, and TensorFlow's, inside the ``with`` block."""
        with entered(self), self._graph.as_default():
            yield self

    @contextmanager
    def in_use(self) -> Iterator[None]:
        if self._users == 0:
            self._finalized_for_good = self._graph.finalized
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and not self._finalized_for_good:
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
                key, lambda: add_epoch_mean(analyzed(self._graph), epoch, value, weight, name)
            )

    def _number_of_epoch(self, what: str) -> Any:
        steps = steps_per_epoch(self)
        if steps is None:
            raise no_epochs(what)
        if self._epoch is None:
            with self._at_top():
                self._epoch = add_epoch(analyzed(self._graph), steps)
        put_before_steps(analyzed(self._graph), self._epoch)
        return self._epoch

    @contextmanager
    def _at_top(self) -> Iterator[None]:
        """Add to the graph inside the ``with`` block, whatever scopes the program is in."""
        with (
            self._graph.as_default(),
            self._graph.name_scope(None),
            self._graph.control_dependencies(None),
        ):
            yield

    def _value(self, element: Any) -> Any:
        """Return the tensor that ``element`` stands for, if it is or names one."""
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


def graph_of(graph: Any) -> TensorFlowGraph:
    """Return the ``TensorFlowGraph`` of a ``tf.Graph``, always the same one."""
    found: TensorFlowGraph | None = getattr(graph, _ATTRIBUTE, None)
    if found is None:
        found = TensorFlowGraph(graph)
        setattr(graph, _ATTRIBUTE, found)  # they go together: the two are a circle
    return found


def current_graph() -> TensorFlowGraph | None:
    """Return TensorFlow's default graph, where it builds graphs; None where it is eager."""
    if tf.executing_eagerly():
        return None
    graph = v1.get_default_graph()
    return None if getattr(graph, "building_function", False) else graph_of(graph)


def known_graph(graph: Any) -> BaseGraph | None:
    """Return a ``tf.Graph`` as hooks ask of it; None if ``graph`` is not one."""
    return graph_of(graph) if isinstance(graph, tf.Graph) else None


def known_session(session: Any) -> RawSession | None:
    """Return a session of TensorFlow as hooks ask of it; None if ``session`` is not one."""
    return observed(session) if is_session(session) else None
