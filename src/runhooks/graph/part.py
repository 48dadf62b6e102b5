"""``Part``: the functions of operations that take a part out of a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.errors import add_note
from runhooks.near_names import suggestion


class Part:
    """A function that returns a part of its first argument.

    Out of a container, such as a dict or a tuple, it takes something that is there already: an
    engine need not compile it, and may call it after a run. Out of an array it computes.
    """

    __slots__ = ()

    def __call__(self, value: Any, *args: Any) -> Any:
        raise NotImplementedError


class Item(Part):
    """Takes an item of a value; its errors say what the value has, and where it was asked for."""

    __slots__ = ("_place", "_tensor")

    def __init__(self, tensor: str, place: str) -> None:
        self._tensor = tensor
        self._place = place

    def __call__(self, value: Any, *args: Any) -> Any:
        (key,) = args
        try:
            return value[key]
        except Exception as error:
            if isinstance(error, KeyError) and isinstance(value, Mapping):
                error = no_item(self._tensor, value, key)
            add_note(error, f"the item is asked for at {self._place}")
            raise error from None


def no_item(tensor: str, value: Mapping[Any, Any], key: Any) -> KeyError:
    """Return the error that the value of ``tensor`` has no item ``key``, with what it has."""
    known = list(map(str, value))
    return KeyError(
        f"the value of {tensor!r} has no item {key!r}: it has {known}{suggestion(str(key), known)}"
    )
