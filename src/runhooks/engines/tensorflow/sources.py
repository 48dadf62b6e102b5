"""The inputs of runs of a ``tf.Graph``: iterators of datasets, and queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

_SOURCES = {
    *("Iterator", "OneShotIterator", "IteratorFromStringHandle", "MultiDeviceIterator"),
    *("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"),
}


def sources_of(graph: Any, fetches: Any, fed: Iterable[Any] = ()) -> list[Any]:
    """Return the inputs that ``fetches``, in any nesting, draw from when ``fed`` is fed."""
    cut = {tensor.name for tensor in _elements(graph, list(fed))}
    return [op for op in _needed(_elements(graph, fetches), cut) if _kind(op) in _SOURCES]


def is_one_dataset(source: Any) -> bool:
    """Return whether ``source`` is bound to one dataset for good."""
    return _kind(source) in ("Iterator", "OneShotIterator") and len(_starts(source)) <= 1


def restart(session: Any, sources: Iterable[Any]) -> None:
    """Restart those of ``sources`` that have one initializer without a placeholder.

    The user restarts all others.
    """
    starts = [starts[0] for source in sources if len(starts := _starts(source)) == 1]
    needed = {start: {_kind(op) for op in _needed([start], set())} for start in starts}
    unfed = [start for start in starts if "Placeholder" not in needed[start]]
    if unfed:
        session.run(unfed)


def _starts(source: Any) -> list[Any]:
    return [op for it in source.outputs for op in it.consumers() if _kind(op) == "MakeIterator"]


def _needed(elements: Iterable[Any], cut: set[str]) -> Iterator[Any]:
    """Yield the operations that ``elements`` need, except through tensors named in ``cut``."""
    pending, seen = list(elements), set()
    while pending:
        element = pending.pop()
        if element.name in cut:
            continue
        operation = getattr(element, "op", element)
        if operation.name not in seen:
            seen.add(operation.name)
            yield operation
            pending += [*operation.inputs, *operation.control_inputs]


def _elements(graph: Any, fetches: Any) -> list[Any]:
    if isinstance(fetches, Mapping):
        fetches = list(fetches.values())
    if isinstance(fetches, list | tuple):
        return [element for item in fetches for element in _elements(graph, item)]
    leaves = tf.nest.flatten(fetches, expand_composites=True)
    try:
        return [graph.as_graph_element(leaf) for leaf in leaves]
    except (TypeError, ValueError, KeyError):  # the run will say what is wrong with it
        return []


def _kind(operation: Any) -> str:
    return str(operation.type).removesuffix("V2")
