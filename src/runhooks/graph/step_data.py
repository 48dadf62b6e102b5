"""Where the parameters of a step that are no states come from: its data, or placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from runhooks.graph import nest
from runhooks.graph.build import add_inputs, check_source, placeholder
from runhooks.graph.graph import Graph
from runhooks.graph.source import Source
from runhooks.graph.tensor import Tensor
from runhooks.near_names import suggestion, with_article


def placeholders(parameters: Sequence[str]) -> dict[str, Tensor]:
    """Return a placeholder for each of ``parameters``."""
    return {parameter: placeholder(parameter) for parameter in parameters}


def drawn(
    graph: Graph, parameters: Sequence[str], data: Any, epochs: int | None
) -> dict[str, Tensor]:
    """Return a tensor for each of ``parameters``, drawn from ``data``, as ``rh.inputs`` takes it.

    Their forms are noted, if ``graph`` knows forms and the first element can be looked at.

    Raises:
        TypeError: If ``data`` cannot be iterated, or has text for a graph that compiles.
        ValueError: If there are no ``parameters``, or the first element does not fit them.
    """
    check_source("data", data, epochs)
    if not parameters:
        raise ValueError(
            "data must be left out: no parameter of the step is left for it. What takes it needs a "
            "name, as in step(params, batch), and no default: *batch and **batch get nothing"
        )
    source = Source(data, epochs, Arrangement(parameters))
    op = add_inputs(source, len(parameters), "data")
    if graph.engine.finds_forms:
        with suppress(LookupError):
            first = source.peek()
            elements = first if len(parameters) > 1 else (first,)
            for tensor, name, element in zip(op.outputs, parameters, elements, strict=True):
                _check(name, element)
                graph.note_form(tensor, graph.engine.form(lambda element=element: element))
    return dict(zip(parameters, op.outputs, strict=True))


def _check(parameter: str, element: Any) -> None:
    for leaf in nest.leaves(element):
        if isinstance(leaf, str | bytes):
            raise TypeError(
                f"data has the text {leaf!r} for {parameter!r}, which cannot be compiled: leave it "
                "out of the elements"
            )


class Arrangement:
    """Arranges an element of the data for the parameters that it is to fill, in their order.

    Names decide: a dict, a named tuple or a dataclass fills the parameters by name if its fields
    have their names, and may have others besides. Otherwise a tuple or a list fills them in order.
    One parameter gets the whole element, or that of its name from one that has nothing else.
    """

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = parameters
        self._names = frozenset(parameters)
        self._unnamed: type | None = None  # that of the last element without names

    def __call__(self, element: Any) -> Any:
        kind, count = type(element), len(self._parameters)
        fields = None if kind is self._unnamed else nest.fields(element)
        if fields is None:
            self._unnamed = kind
        elif fields.keys() == self._names or (count > 1 and fields.keys() >= self._names):
            found = tuple([fields[parameter] for parameter in self._parameters])
            return found if count > 1 else found[0]
        if count == 1:
            return element
        is_tuple = isinstance(element, tuple | list)
        if fields is not None and not (is_tuple and self._names.isdisjoint(fields)):
            raise self._lacking(fields)
        if is_tuple and len(element) == count:
            return tuple(element)
        size = f" of {len(element)}" if is_tuple else ""
        hint = _not_data(self._parameters) if is_tuple and len(element) < count else ""
        raise ValueError(
            f"an element of data must be a tuple of {count}, for the parameters "
            f"{list(self._parameters)} of the step, or a dict with these names; got "
            f"{with_article(kind.__name__)}{size}{hint}"
        )

    def _lacking(self, fields: Mapping[str, Any]) -> ValueError:
        parameter = next(it for it in self._parameters if it not in fields)
        return ValueError(
            f"an element of data must have {parameter!r}, a parameter of the step; it has "
            f"{list(fields)}{suggestion(parameter, fields)}"
        )


def _not_data(parameters: Sequence[str]) -> str:
    """Return how to name what the step does not take from its data."""
    keys = [it for it in parameters if it.endswith(("rng", "key"))]
    if keys:
        return f"; a random key is given as {keys[0]}=rh.random_key"
    return f"; a state is given by its name, such as {parameters[0]}=..."
