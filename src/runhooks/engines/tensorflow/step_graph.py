"""``StepGraph``: the global step of a ``tf.Graph``, read in the very run that changes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from runhooks.graph.bounded_cache import BoundedCache

_ATTRIBUTE = "runhooks_step_graph"


v1 = tf.compat.v1

#: Operations that only look at a variable, by its resource or by its reference.
_READERS = {
    *("ReadVariableOp", "VarIsInitializedOp", "VariableShape", "ResourceGather"),
    *("Identity", "IsVariableInitialized", "Shape", "Size", "Rank", "SaveV2", "SaveSlices"),
}
_INCREASES = {"AssignAdd", "AssignAddVariableOp"}
#: Operations that have changed the variable when they have ended. A branch, a loop or a call of a
#: function may end before what is in it.
_ASSIGNS = {*_INCREASES, "Assign", "AssignVariableOp", "AssignSub", "AssignSubVariableOp"}


class StepChange(NamedTuple):
    """The change that a run makes to the global step.

    Attributes:
        reads: Tensors to fetch with the run; the largest value is the new global step.
        is_known: Whether that is so; if not, the step has to be read after the run.
        increase: By how much each such run increases the step; None if that is not known.
    """

    reads: tuple[Any, ...]
    is_known: bool
    increase: int | None = None

    @property
    def never_decreases(self) -> bool:
        """Whether no such run decreases the step."""
        return self.increase is not None and self.increase >= 0


UNCHANGED = StepChange((), is_known=True, increase=0)


class StepReads:
    """Finds which operations change the global step, and what to fetch with each.

    An operation on a reference has the new value as its output. One on a resource has none, and
    gets a read. A change in a ``cond`` or a ``while_loop`` has no read: nothing outside can wait
    for it.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._added: dict[Any, Any] = {}
        self._changing: set[Any] = set()
        self._version = -1

    @property
    def tensor(self) -> Any:
        """The global step as a tensor to fetch, or None if the graph has none."""
        step = v1.train.get_global_step(self._graph)
        return None if step is None else self._graph.as_graph_element(step)

    def prepare(self) -> None:
        """Add the reads that are missing, unless the graph is final."""
        self._look()
        step = v1.train.get_global_step(self._graph)
        if self._graph.finalized or not hasattr(step, "read_value"):
            return
        for operation in sorted(self._changing - self._added.keys(), key=lambda op: op.name):
            if not operation.outputs and _can_be_read(operation):
                with (
                    self._graph.as_default(),
                    tf.name_scope("runhooks/"),
                    self._graph.control_dependencies(None),
                    self._graph.control_dependencies([operation]),
                    self._graph.colocate_with(step.op, ignore_existing=True),
                ):
                    self._added[operation] = step.read_value()
        self._version = self._graph.version

    @property
    def is_increased(self) -> bool:
        """Whether an operation of the graph increases the global step."""
        self._look()
        return any(operation.type in _INCREASES for operation in self._changing)

    def change(self, elements: Iterable[Any]) -> StepChange:
        """Return what a run that fetches ``elements`` does to the global step."""
        self._look()
        found = _reached(elements, self._changing) if self._changing else set()
        if not found:
            return UNCHANGED
        reads = tuple(read for op in found if (read := self._read_of(op)) is not None)
        is_known = len(reads) == len(found) and (
            len(found) == 1 or all(op.type in _INCREASES for op in found)
        )
        increase = _constant_increase(*found) if is_known and len(found) == 1 else None
        return StepChange(reads if is_known else (), is_known, increase)

    def _read_of(self, operation: Any) -> Any:
        """Return the tensor that has the step after ``operation``; None if there is none."""
        if operation.outputs and _can_be_read(operation):
            return operation.outputs[
                0
            ]  # a read beside it may change the order of racing operations
        return self._added.get(operation)

    def _look(self) -> None:
        """Find what changes the global step, if anything was added to the graph since."""
        if self._version == self._graph.version:
            return
        self._version = self._graph.version
        step = v1.train.get_global_step(self._graph)
        if step is None:
            self._changing = set()
            return
        handle = getattr(step, "handle", None)
        tensor = step.op.outputs[0] if handle is None else handle
        own = {read.op for read in self._added.values()}
        self._changing = {
            op for op in tensor.consumers() if op.type not in _READERS and op not in own
        }


def _constant_increase(operation: Any) -> int | None:
    if operation.type not in _INCREASES:
        return None
    value = tf.get_static_value(operation.inputs[1])
    return None if value is None else int(value)


def _can_be_read(operation: Any) -> bool:
    context = getattr(operation, "_get_control_flow_context", lambda: None)()
    return operation.type in _ASSIGNS and context is None


def _reached(elements: Iterable[Any], wanted: set[Any]) -> set[Any]:
    """Return those of the operations ``wanted`` that ``elements`` need."""
    pending = [element if hasattr(element, "outputs") else element.op for element in elements]
    seen = set(pending)
    while pending:
        operation = pending.pop()
        needed = (*(tensor.op for tensor in operation.inputs), *operation.control_inputs)
        new = [op for op in needed if op not in seen]
        seen.update(new)
        pending += new
    return seen & wanted


class StepGraph:
    """A ``tf.Graph``, ``launched``, with what its sessions have found out about it."""

    def __init__(self, graph: Any) -> None:
        self.launched = graph
        self.step_reads = StepReads(graph)
        #: The plans of fetches and feeds, kept for every session of this graph.
        self.plans: dict[Any, Any] = BoundedCache()

    def as_graph_element(self, element: Any) -> Any:
        """Return the tensor or operation that ``element``, itself or its name, stands for."""
        return self.launched.as_graph_element(element)


def step_graph_of(graph: Any) -> StepGraph:
    """Return the one that belongs to a ``tf.Graph``."""
    found: StepGraph | None = getattr(graph, _ATTRIBUTE, None)
    if found is None:
        found = StepGraph(graph)
        setattr(graph, _ATTRIBUTE, found)  # they go together: the two are a circle
    return found
