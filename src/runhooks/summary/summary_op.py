"""Adding summaries to a graph: their inputs, names, tags and collections."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isroutine
from numbers import Number
from typing import Any

from runhooks.arrays import is_array
from runhooks.graph import names, nest
from runhooks.graph.collections import GraphKeys
from runhooks.graph.default_graph import get_default_graph
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.tensor import Operation, Placement, Tensor, Variable
from runhooks.summary.kinds.scalar import kept_number
from runhooks.summary.message import Summary, Value

_log = logging.getLogger("runhooks")


def graph_of(value: Any) -> Graph:
    """Return the graph of the first tensor in ``value``; the default graph if there is none."""
    found = nest.tensors(value)
    return own_graph(found[0].graph if found else None)


def single(kind: str, name: str, value: Any) -> Any:
    """Return what a summary of one tensor is to be made of.

    Args:
        kind: The kind of the summary; a text is never the name of a tensor.
        name: Its name.
        value: A tensor or its name, a number or an array, or a list of these.

    Raises:
        TypeError: ``value`` is something else, or ``name`` is not a str.
        ValueError: No tensor has that name; or a scalar is made of more than one number.
    """
    what = _what(kind, name)
    value = value if kind == "text" else _named(what, value)
    is_known = isinstance(value, Variable) and not callable(value.initial_value)
    held = value.initial_value if is_known else value
    if isinstance(held, Mapping):
        key = next(iter(held), "loss")
        raise TypeError(
            f"{what} takes one tensor, got a {type(held).__name__} with {sorted(map(str, held))}: "
            f"write a summary for each, of value[{key!r}] and so on"
        )
    for leaf in nest.leaves(held):
        if not isinstance(leaf, Tensor | Number | str | bytes) and not is_array(leaf):
            raise TypeError(_wrong(what, leaf))
    if kind == "scalar" and isinstance(held, list | tuple) and len(held) != 1:
        raise ValueError(f"{what} takes one number, got {len(held)}: write a summary for each")
    if kind == "scalar" and not nest.tensors(held):
        kept_number(name, held)
    if kind == "scalar" and not isinstance(held, Tensor | Number) and value is held:
        _log.warning(
            "%s is of an array, so that each run writes the same: give a tensor of the graph, or "
            "its name, for what changes",
            what,
        )
    return value


def tree(kind: str, name: str, values: Any) -> Any:
    """Return what summaries of a tensor, or a pytree of tensors, are to be made of.

    Raises:
        TypeError: There is an operation or a function in ``values``, or nothing; or ``name`` is
            not a str.
        ValueError: ``values`` is a str that does not name a tensor.
    """
    what = _what(kind, name)
    values = _named(what, values)
    for leaf in nest.leaves(values):
        if isinstance(leaf, Operation) or values is None or isroutine(leaf):
            raise TypeError(_wrong(what, leaf))
    return values


def _what(kind: str, name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}: look at the order of the arguments")
    return f"{kind} summary {name!r}"


def _named(what: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    element = get_default_graph().as_graph_element(value)
    outputs = element.outputs if isinstance(element, Operation) else (element,)
    if not outputs:
        raise ValueError(f"{what} needs a tensor: the operation {value!r} has no value")
    return outputs[0]


def _wrong(what: str, leaf: Any) -> str:
    if isinstance(leaf, Operation):
        cure = f"give its output {leaf.name + ':0'!r}" if leaf.outputs else "it has no value"
        return f"{what} needs a tensor, got the operation {leaf.name!r}: {cure}"
    cure = ": rh.call(function, ...) makes a tensor of its result" if callable(leaf) else ""
    return f"{what} needs a tensor, its name, a number or an array, got {reprlib.repr(leaf)}{cure}"


def summary_op(
    kind: str,
    name: str,
    value: Any,
    collections: Sequence[str] | None,
    family: str | None,
    make: Callable[[str, Any], Iterable[Value]],
) -> Tensor:
    """Add an operation that gives the summary of ``make(tag, value)``.

    ``value``: a structure of tensors and constants. The tag is ``name`` under the current name
    scope, made unique; with a ``family``, ``family/name`` under the scope with the family in front
    of it once more, so that it begins with the family.
    """
    if collections is not None and (
        isinstance(collections, str) or not isinstance(collections, Iterable)
    ):
        raise TypeError(
            f"collections must be a list of names, got {collections!r}: runhooks.summary adds "
            "summaries to a graph; to write a value at a step, use a runhooks.summary.FileWriter"
        )
    name = names.cleaned(name, "summary")
    if family is not None:
        family = names.cleaned(family, "summary")
        name = f"{family}/{name}"
    graph = graph_of(value)
    tag = graph.unique_tag(name)
    if family is not None:
        tag = f"{family}/{tag}"
    op = graph.add(
        kind,
        lambda value: Summary(make(tag, value)),
        (value,),
        name=name,
        placement=Placement.HOST,
    )
    collect(op.outputs[0], [GraphKeys.SUMMARIES] if collections is None else collections)
    return op.outputs[0]


def is_summary(element: Any) -> bool:
    """Return whether ``element`` is a summary, or an operation that makes one."""
    op = element.op if isinstance(element, Tensor) else element
    return isinstance(op, Operation) and op.type.endswith(("Summary", "SummaryV2"))


def collect(summary: Tensor, collections: Iterable[str]) -> None:
    """Add ``summary`` to ``collections`` of its graph."""
    for key in collections:
        summary.graph.add_to_collection(key, summary)
