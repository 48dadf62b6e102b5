"""``FetchPlan``: a set of fetches and feeds, resolved once for all runs that ask for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runhooks.engines.tensorflow.step_graph import StepChange, StepGraph

Read = Callable[[Sequence[Any]], Any]

_HANDLES = ("GetSessionHandle", "GetSessionHandleV2")


class DirectRun(NamedTuple):
    """A run that a callable can make, without ``Session.run``.

    Attributes:
        fetches: Names of tensors.
        targets: Names of operations.
        feeds: Names of tensors.
        convert: The key of each feed, and a function from its value to an array.
        read: From the fetched values to the result.
    """

    fetches: list[str]
    targets: list[str]
    feeds: list[str]
    convert: list[tuple[Any, Callable[[Any], Any]]]
    read: Read


class FetchPlan(NamedTuple):
    """How a run is made.

    Attributes:
        direct: None for a run that is left to ``Session.run``.
        step: What it does to the global step; None if that is not known.
    """

    direct: DirectRun | None
    step: StepChange | None


def make_plan(graph: StepGraph, fetches: Any, feed_keys: Sequence[Any]) -> FetchPlan:
    """Resolve ``fetches``; what cannot be resolved is left to ``Session.run``, which says why."""
    try:
        step = graph.step_reads.change(_elements(graph, fetches))
    except (TypeError, ValueError, KeyError):
        return FetchPlan(None, None)
    try:
        return FetchPlan(_direct(graph, fetches, feed_keys), step)
    except (_NotDirectError, TypeError, ValueError, KeyError):
        return FetchPlan(None, step)


class _NotDirectError(Exception):
    """Only ``Session.run`` can make this run."""


def _elements(graph: StepGraph, fetches: Any) -> list[Any]:
    leaves = tf.nest.flatten(_plain(fetches), expand_composites=True)
    return [graph.as_graph_element(leaf) for leaf in leaves]


def _plain(fetches: Any) -> Any:
    # tf.nest sorts the keys of a dict, which need not be comparable here.
    if isinstance(fetches, Mapping):
        return [_plain(item) for item in fetches.values()]
    if isinstance(fetches, list | tuple):
        return [_plain(item) for item in fetches]
    return fetches


def _direct(graph: StepGraph, fetches: Any, feed_keys: Sequence[Any]) -> DirectRun:
    feeds = [_fed(graph, key) for key in feed_keys]
    tensors: dict[str, int] = {}
    targets: dict[str, None] = {}

    def read(fetch: Any) -> Read:
        if isinstance(fetch, list | tuple | Mapping):
            return _structure(fetch, [read(item) for item in _items(fetch)])
        element = graph.as_graph_element(fetch)
        if not isinstance(element, tf.Tensor):
            targets[element.name] = None
            return lambda values: None
        if element.name in feeds or element.op.type in _HANDLES:
            raise _NotDirectError
        return _own(tensors.setdefault(element.name, len(tensors)))

    result = read(fetches)
    if not tensors and not targets:
        raise _NotDirectError
    return DirectRun(
        list(tensors),
        list(targets),
        feeds,
        [(key, _converter(graph, name)) for key, name in zip(feed_keys, feeds, strict=True)],
        result,
    )


def _own(place: int) -> Read:
    """Read the value at ``place``. What a callable returns may be the memory of a variable."""

    def read(values: Sequence[Any]) -> Any:
        value = values[place]
        if value.__class__ is np.ndarray and value.base is not None:
            return value.copy()
        return value

    return read


def _items(structure: Any) -> list[Any]:
    return list(structure.values() if isinstance(structure, Mapping) else structure)


def _structure(fetches: Any, readers: list[Read]) -> Read:
    kind = type(fetches)
    if issubclass(kind, list):
        return lambda values: [read(values) for read in readers]
    if kind is tuple:
        return lambda values: tuple([read(values) for read in readers])
    if issubclass(kind, tuple):
        return lambda values: kind(*[read(values) for read in readers])
    if kind is dict or kind is OrderedDict:
        keys = list(fetches)
        return lambda values: kind(zip(keys, [read(values) for read in readers], strict=True))
    raise _NotDirectError


def _fed(graph: StepGraph, key: Any) -> str:
    element = graph.as_graph_element(key)
    if not isinstance(element, tf.Tensor) or not graph.launched.is_feedable(element):
        raise _NotDirectError
    if not isinstance(key, tf.Tensor | str):
        raise _NotDirectError
    return str(element.name)


def _converter(graph: StepGraph, name: str) -> Callable[[Any], Any]:
    """A function from the value that is fed to an array; raises as ``Session.run`` does."""
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
    if hasattr(value, "to_numpy_array"):  # a handle of a tensor that a session keeps
        value = value.to_numpy_array()
    # A cast wraps what is too large; NumPy would raise OverflowError if it were told the dtype.
    is_number = np.issubdtype(dtype, np.number)
    array = np.asarray(value).astype(dtype) if is_number else np.asarray(value, dtype)
    if isinstance(value, int) and is_number and array != value:
        raise TypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor "
            f"type {dtype}. Try explicitly setting the type of the feed tensor to a larger type "
            "(e.g. int64)."
        )
    return array
