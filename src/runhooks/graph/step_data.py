"""``Arrangement``: which parameter of a step gets which part of an element of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runhooks.near_names import suggestion


class Arrangement:
    """Arranges an element of the data for the parameters that it is to fill, in their order.

    One parameter gets the whole element, or that of its name from a dict that has nothing else.
    """

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = parameters

    def __call__(self, element: Any) -> Any:
        parameters = self._parameters
        if len(parameters) == 1:
            is_named = isinstance(element, Mapping) and list(element) == list(parameters)
            return element[parameters[0]] if is_named else element
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
            raise ValueError(
                f"an element of data must be a tuple of {len(parameters)}, for the parameters "
                f"{list(parameters)} of the step, or a dict with these names; got a "
                f"{type(element).__name__}{size}"
            )
        return tuple(element)
