"""How an operation that makes a summary gets into a graph: its name, its tag, its collections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runhooks.graph import names, nest
from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.tensor import Operation, Placement, Tensor
from runhooks.summary.message import Summary, Value


def graph_of(value: Any) -> Graph:
    """The graph of the first tensor in ``value``, a structure; the default graph without any."""
    found = nest.tensors(value)
    return found[0].graph if found else get_default_graph()


def named(value: Any) -> Any:
    """``value``; the tensor of the default graph that it names if it is a str.

    Raises ValueError for a str that names none.
    """
    if not isinstance(value, str):
        return value
    element = get_default_graph().as_graph_element(value)
    outputs = element.outputs if isinstance(element, Operation) else (element,)
    if not outputs:
        raise ValueError(f"a summary needs a tensor: the operation {value!r} has no value")
    return outputs[0]


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


def collect(summary: Tensor, collections: Iterable[str]) -> None:
    """Add ``summary`` to ``collections`` of its graph."""
    for key in collections:
        summary.graph.add_to_collection(key, summary)
