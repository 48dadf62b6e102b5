"""Where the parameters of a step that are no states come from: its data, or placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from runhooks.graph import nest
from runhooks.graph.build import add_inputs, check_source, placeholder
from runhooks.graph.graph import Graph
from runhooks.graph.source import Source
from runhooks.graph.tensor import Tensor
from runhooks.near_names import suggestion


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

    One parameter gets the whole element, or that of its name from a dict that has nothing else.
    """

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = parameters
        self._names = frozenset(parameters)
        self._values_of = itemgetter(*parameters)
        self._other: type | None = None  # than a mapping: that of the last element

    def __call__(self, element: Any) -> Any:
        parameters, kind = self._parameters, type(element)
        if len(parameters) == 1:
            if kind is self._other:
                return element
            if kind is not dict and not isinstance(element, Mapping):
                self._other = kind
                return element
            is_named = len(element) == 1 and parameters[0] in element
            return element[parameters[0]] if is_named else element
        if kind is tuple and len(element) == len(parameters):
            return element
        if kind is dict and element.keys() >= self._names:
            return self._values_of(element)
        if isinstance(element, Mapping):
            for parameter in parameters:
                if parameter not in element:
                    raise ValueError(
                        f"an element of data must have {parameter!r}, a parameter of the step; it "
                        f"has {list(element)}{suggestion(parameter, map(str, element))}"
                    )
            return tuple(element[parameter] for parameter in parameters)
        if not isinstance(element, tuple | list) or len(element) != len(parameters):
            size = f" of {len(element)}" if isinstance(element, tuple | list) else ""
            hint = _not_data(parameters) if size and len(element) < len(parameters) else ""
            raise ValueError(
                f"an element of data must be a tuple of {len(parameters)}, for the parameters "
                f"{list(parameters)} of the step, or a dict with these names; got a "
                f"{type(element).__name__}{size}{hint}"
            )
        return tuple(element)


def _not_data(parameters: Sequence[str]) -> str:
    """Return how to name what the step does not take from its data."""
    keys = [it for it in parameters if it.endswith(("rng", "key"))]
    if keys:
        return f"; a random key is given as {keys[0]}=rh.random_key"
    return f"; a state is given by its name, such as {parameters[0]}=..."
