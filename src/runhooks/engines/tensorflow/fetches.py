"""``FetchPlan``: fetches and feeds resolved once, and the global step read in the same run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from runhooks.arrays.trees import Container, builtin_container_of, mapped
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import BoundedCache
from runhooks.near_names import suggestion

v1 = tf.compat.v1

Companion = TypeVar("Companion")

_READERS = {
    *("ReadVariableOp", "VarIsInitializedOp", "VariableShape", "ResourceGather"),
    *("Identity", "IsVariableInitialized", "Shape", "Size", "Rank", "SaveV2", "SaveSlices"),
}
_INCREASES = {"AssignAdd", "AssignAddVariableOp"}
_SETS = {"Assign", "AssignVariableOp"}
#: Operations that have changed the variable when they end. A branch, loop or call may end before.
_ASSIGNS = {*_INCREASES, *_SETS, "AssignSub", "AssignSubVariableOp"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


class StepChange(NamedTuple):
    """What a run does to the global step: the largest of ``reads`` is the new one.

    ``increase``: by how much each such run increases it, if known.
    """

    reads: tuple[Any, ...]
    increase: int | None


UNCHANGED = StepChange((), increase=0)


def companion(of: Any, kind: Callable[[Any], Companion]) -> Companion:
    """Return the one ``kind(of)``, which is kept in an attribute of ``of``."""
    name = f"runhooks_{kind.__name__}"
    found: Companion | None = getattr(of, name, None)
    if found is None or type(found) is not kind:  # an object may have every attribute
        found = kind(of)
        with suppress(AttributeError):
            setattr(of, name, found)
    return found


def _handle(variable: Any) -> Any:
    """Return the tensor that is the handle of a variable, or its reference."""
    handle = getattr(variable, "handle", None)
    return variable.op.outputs[0] if handle is None else handle


def _changing(tensor: Any) -> Iterator[Any]:
    """Yield what may change the variable of which ``tensor`` is the ``_handle``."""
    for op in tensor.consumers():
        if op.type == "Identity" and op.outputs[0].dtype == tf.resource:  # the handle once more
            yield from _changing(op.outputs[0])
        elif op.type not in _READERS:
            yield op


def _constant_increase(operation: Any, fed: Collection[str]) -> int | None:
    if operation.type in _INCREASES:
        value = operation.inputs[1]
        if value.op.type == "Const" and value.name not in fed:
            # tf.get_static_value would forbid to feed it.
            return int(tf.make_ndarray(value.op.get_attr("value")))
    return None


def _can_be_read(operation: Any) -> bool:
    return operation.type in _ASSIGNS and not _is_inside(operation)


def _is_inside(operation: Any) -> bool:
    return getattr(operation, "_get_control_flow_context", lambda: None)() is not None


def _makes_step(operation: Any) -> bool:
    if _is_inside(operation):
        return False
    if operation.type in _SETS:  # an initializer, unless it needs the old value
        return operation.inputs[0].op in needed([operation.inputs[1]])
    return operation.type in _ASSIGNS or operation.type in _CALLS


def elements_of(graph: Any, fetches: Any) -> list[Any]:
    """Return the tensors and operations in ``fetches``; raise for any other."""
    # tf.nest sorts the keys of a dict, which need not be comparable here.
    leaves = tf.nest.flatten(list(nest.leaves(fetches)), expand_composites=True)
    return [graph.as_graph_element(leaf) for leaf in leaves]


def names_of(graph: AnalyzedGraph, feed_keys: Iterable[Any]) -> set[str]:
    return {element.name for element in elements_of(graph, list(feed_keys))}


def needed(
    elements: Iterable[Any], fed: Collection[str] = (), *, for_value: bool = False
) -> Iterator[Any]:
    """Yield the operations that ``elements`` need, if the tensors named in ``fed`` are fed.

    ``for_value``: not those that merely come before.
    """
    pending, seen = list(elements), set()
    while pending:
        element = pending.pop()
        operation = getattr(element, "op", element)
        if operation not in seen and not (fed and element.name in fed):
            seen.add(operation)
            yield operation
            pending += operation.inputs
            if not for_value:
                pending += operation.control_inputs


def accumulated(variable: Any, value: Any, update: Any) -> bool:
    """Return whether ``update`` changes ``variable``, and ``value`` is made of it."""
    tensor = _handle(variable)
    if tensor.op not in needed([value], for_value=True):
        return False
    return not set(_changing(tensor)).isdisjoint(needed([update]))


class AnalyzedGraph:
    """A ``tf.Graph``, ``launched``, with what changes its step.

    An operation on a reference outputs the new value; one on a resource gets a read, unless it is
    in a ``cond`` or a ``while_loop``, for which nothing outside can wait.
    """

    def __init__(self, graph: Any) -> None:
        self.launched = graph
        self.plans: dict[Any, Any] = BoundedCache()
        self._reads: dict[Any, Any] = {}  # those added, by the operation before
        self._changing: set[Any] = set()
        self._version = -1

    def as_graph_element(self, element: Any) -> Any:
        return self.launched.as_graph_element(element)

    def note_near_names(self, error: Exception, fetches: Any) -> None:
        operations = {op.name: op for op in self.launched.get_operations()}
        for leaf in nest.leaves(fetches):
            name, colon, _ = leaf.partition(":") if isinstance(leaf, str) else ("", "", "")
            if not name or name in operations:
                continue
            tensors = [f"{it}:0" for it, op in operations.items() if op.outputs]
            if near := suggestion(leaf, tensors if colon else operations):
                add_note(error, f"nothing is named {leaf!r} in the graph{near}")

    @property
    def global_step(self) -> Any:
        """The tensor to fetch, if any."""
        step = v1.train.get_global_step(self.launched)
        return None if step is None else self.launched.as_graph_element(step)

    def add_step_reads(self) -> None:
        """Add the reads that are missing, unless the graph is final."""
        self._look()
        step = v1.train.get_global_step(self.launched)
        if self.launched.finalized or not hasattr(step, "read_value"):
            return
        for operation in sorted(self._changing - self._reads.keys(), key=lambda op: op.name):
            if not operation.outputs and _can_be_read(operation):
                with (
                    self.launched.as_default(),
                    tf.name_scope("runhooks/"),
                    self.launched.control_dependencies(None),
                    self.launched.control_dependencies([operation]),
                    self.launched.colocate_with(step.op, ignore_existing=True),
                ):
                    self._reads[operation] = step.read_value()
        self._version = self.launched.version

    @property
    def increases_step(self) -> bool:
        self._look()
        return any(operation.type in _INCREASES for operation in self._changing)

    def step_makers(self) -> list[Any]:
        """Return what computes a new step of the old, outside ``cond`` and loops."""
        self._look()
        ops = [op for op in self.launched.get_operations() if op in self._changing]
        return [op for op in ops if _makes_step(op)]

    def step_change(self, elements: Iterable[Any], fed: Collection[str] = ()) -> StepChange | None:
        """Return what a run of ``elements`` does to the step; None: unknown."""
        self._look()
        found = self._changing.intersection(needed(elements, fed)) if self._changing else set()
        if not found:
            return UNCHANGED
        # Another read beside an output may change the order of racing operations.
        after = [
            op.outputs[0] if op.outputs and _can_be_read(op) else self._reads.get(op)
            for op in found
        ]
        reads = [read for read in after if read is not None and read.name not in fed]
        is_single = len(found) == 1
        is_ordered = is_single or all(op.type in _INCREASES for op in found)
        if len(reads) < len(found) or not is_ordered:
            return None
        increase = _constant_increase(next(iter(found)), fed) if is_single else None
        return StepChange(tuple(reads), increase)

    def _look(self) -> None:
        if self._version == self.launched.version:
            return
        self._version = self.launched.version
        step = v1.train.get_global_step(self.launched)
        own = {read.op for read in self._reads.values()}
        self._changing = set() if step is None else set(_changing(_handle(step))) - own


def analyzed(graph: Any) -> AnalyzedGraph:
    return companion(graph, AnalyzedGraph)


_HANDLES = ("GetSessionHandle", "GetSessionHandleV2")


class DirectRun(NamedTuple):
    """A run that a callable can make, without ``Session.run``; all by name."""

    fetches: list[str]
    targets: list[str]
    feeds: list[str]
    convert: list[tuple[Any, Callable[[Any], Any]]]  # the key of a feed, and what makes an array
    read: Callable[[Sequence[Any]], Any]


class FetchPlan(NamedTuple):
    """How a run is made: by ``Session.run`` if not ``direct``. ``step`` is None if not known."""

    direct: DirectRun | None
    step: StepChange | None

    @property
    def never_decreases(self) -> bool:
        increase = None if self.step is None else self.step.increase
        return increase is not None and increase >= 0


def make_plan(graph: AnalyzedGraph, fetches: Any, feed_keys: Sequence[Any]) -> FetchPlan:
    """Resolve ``fetches``, or leave them to ``Session.run``, which says what is wrong."""
    try:
        fed = names_of(graph, feed_keys)
        step = graph.step_change(elements_of(graph, fetches), fed)
    except (TypeError, ValueError, KeyError):
        return FetchPlan(None, None)
    try:
        return FetchPlan(_direct(graph, fetches, feed_keys), step)
    except (_NotDirectError, TypeError, ValueError, KeyError):
        return FetchPlan(None, step)


class _NotDirectError(Exception):
    """Only ``Session.run`` can make this run."""


def _direct(graph: AnalyzedGraph, fetches: Any, feed_keys: Sequence[Any]) -> DirectRun:
    feeds = [_fed(graph, key) for key in feed_keys]
    tensors: dict[str, int] = {}
    targets: dict[str, None] = {}
    order: list[int] = []  # whoever asks gets a value of their own

    def place(fetch: Any) -> int | None:
        if not isinstance(fetch, tf.Tensor | tf.Operation | tf.Variable | str):
            raise _NotDirectError  # as a tf.RaggedTensor
        element = graph.as_graph_element(fetch)
        if not isinstance(element, tf.Tensor):
            targets[element.name] = None
            return None
        if element.name in feeds or element.op.type in _HANDLES:
            raise _NotDirectError
        order.append(tensors.setdefault(element.name, len(tensors)))
        return len(order) - 1

    read = nest.reader(mapped(place, fetches, _container_of), int, lambda place: place)
    if not tensors and not targets:
        raise _NotDirectError
    return DirectRun(
        list(tensors),
        list(targets),
        feeds,
        [(key, _converter(graph, name)) for key, name in zip(feed_keys, feeds, strict=True)],
        lambda values: read([_own(values[it]) for it in order]),
    )


def _container_of(fetches: Any) -> Container | None:
    if isinstance(fetches, Mapping) and type(fetches) not in (dict, OrderedDict):
        raise _NotDirectError
    return builtin_container_of(fetches)


def _own(value: Any) -> Any:
    return value.copy() if value.__class__ is np.ndarray and value.base is not None else value


def _fed(graph: AnalyzedGraph, key: Any) -> str:
    element = graph.as_graph_element(key)
    is_tensor = isinstance(key, tf.Tensor | str) and isinstance(element, tf.Tensor)
    if not is_tensor or not graph.launched.is_feedable(element):
        raise _NotDirectError
    return str(element.name)


def _converter(graph: AnalyzedGraph, name: str) -> Callable[[Any], Any]:
    tensor = graph.as_graph_element(name)
    dtype, shape = tensor.dtype.as_numpy_dtype, tensor.shape
    rank = shape.rank
    sizes = None if rank is None else tuple(shape.as_list())
    free = sizes is not None and all(size is None for size in sizes)

    def convert(value: Any) -> Any:
        if value.__class__ is not np.ndarray or value.dtype != dtype:
            value = _array(name, value, dtype)
        if rank is None or (free and value.ndim == rank) or value.shape == sizes:
            return value
        if not shape.is_compatible_with(value.shape):
            raise ValueError(
                f"Cannot feed value of shape {value.shape} for Tensor {name}, which has shape "
                f"{shape}"
            )
        return value

    return convert


def _array(name: str, value: Any, dtype: Any) -> Any:
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        raise TypeError(
            f"The value of a feed cannot be a tf.Tensor object, got {value!r} for {name}: feed an "
            "array, a number, a string or a list"
        )
    if hasattr(value, "to_numpy_array"):
        value = value.to_numpy_array()
    # A cast wraps what is too large, for which NumPy would raise OverflowError.
    is_number = np.issubdtype(dtype, np.number)
    array = np.asarray(value).astype(dtype) if is_number else np.asarray(value, dtype)
    is_quantized = array.dtype.names is not None  # it cannot be compared
    if isinstance(value, int) and not is_quantized and (dtype is object or array != value):
        raise TypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor "
            f"type {dtype}. Try explicitly setting the type of the feed tensor to a larger type "
            "(e.g. int64)."
        )
    return array
