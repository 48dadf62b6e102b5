"""``Part``: the functions of operations that take a part out of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from runhooks.errors import add_note
from runhooks.near_names import suggestion

#: Returns the parts of a value one level down, by key; none of a leaf.
Children: TypeAlias = Callable[[Any], Mapping[str, Any]]


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


class Below(Part):
    """Takes what stands at a path below a value, such as ``"dense/kernel"``.

    Args:
        path: The keys down to it, with ``"/"`` between them.
        children: Returns the parts of a value one level down, by key.
        missing: Returns the error to raise of a value that has nothing there.
    """

    __slots__ = ("_children", "_missing", "_path")

    def __init__(self, path: str, children: Children, missing: Callable[[Any], Exception]) -> None:
        self._path = path
        self._children = children
        self._missing = missing

    def __call__(self, value: Any, *args: Any) -> Any:
        found = list(_at(self._path, value, self._children))
        if not found:
            raise self._missing(value)
        return found[0]


def _at(path: str, value: Any, children: Children) -> Iterator[Any]:
    for key, child in children(value).items():  # keys may have a "/" in them
        if key == path:
            yield child
        elif path.startswith(f"{key}/"):
            yield from _at(path.removeprefix(f"{key}/"), child, children)


def paths_below(value: Any, children: Children) -> Iterator[str]:
    """Yield the paths of everything below ``value``, of containers before what is in them."""
    for key, child in children(value).items():
        yield key
        yield from (f"{key}/{path}" for path in paths_below(child, children))


def no_item(tensor: str, value: Mapping[Any, Any], key: Any) -> KeyError:
    """Return the error that the value of ``tensor`` has no item ``key``, with what it has."""
    known = list(map(str, value))
    return KeyError(
        f"the value of {tensor!r} has no item {key!r}: it has {known}{suggestion(str(key), known)}"
    )
