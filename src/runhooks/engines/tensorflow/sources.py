"""What runs of a ``tf.Graph`` draw from: iterators of datasets, and queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

_SOURCES = {
    *("Iterator", "OneShotIterator", "IteratorFromStringHandle", "MultiDeviceIterator"),
    *("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"),
}


def sources_of(graph: Any, fetches: Any, fed: Iterable[Any] = ()) -> list[Any]:
    """The operations that ``fetches``, in any nesting, draw from, if what is ``fed`` is fed."""
    cut = {tensor.name for tensor in _elements(graph, list(fed))}
    return [op for op in _needed(_elements(graph, fetches), cut) if _kind(op) in _SOURCES]


def is_one_dataset(source: Any) -> bool:
    """Whether ``source`` goes through one dataset, and nobody can switch it to another one."""
    return _kind(source) in ("Iterator", "OneShotIterator") and len(_starts(source)) <= 1


def begin_anew(session: Any, sources: Iterable[Any]) -> None:
    """Let those of ``sources`` begin anew that have one way to, and no placeholder in it.

    To begin all others is left to the user.
    """
    starts = [starts[0] for source in sources if len(starts := _starts(source)) == 1]
    needed = {start: {_kind(op) for op in _needed([start], set())} for start in starts}
    unfed = [start for start in starts if "Placeholder" not in needed[start]]
    if unfed:
        session.run(unfed)


def _starts(source: Any) -> list[Any]:
    return [op for it in source.outputs for op in it.consumers() if _kind(op) == "MakeIterator"]


def _needed(elements: Iterable[Any], cut: set[str]) -> Iterator[Any]:
    """The operations that ``elements`` need, without what only tensors named in ``cut`` need."""
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
        return [element for part in fetches for element in _elements(graph, part)]
    parts = tf.nest.flatten(fetches, expand_composites=True)
    try:
        return [graph.as_graph_element(part) for part in parts]
    except (TypeError, ValueError, KeyError):  # the run is to say what is wrong with it
        return []


def _kind(operation: Any) -> str:
    return str(operation.type).removesuffix("V2")
