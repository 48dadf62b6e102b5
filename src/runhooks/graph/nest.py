"""Nested structures of tensors, as fetches are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import is_, itemgetter
from typing import Any

from runhooks.arrays.trees import builtin_container_of, mapped, walk
from runhooks.graph.nodes import Operation, Tensor

Values = Mapping[Tensor, Any]

_LEAVES = (Tensor, Operation, str)

#: Python could not walk more.
_MOST_LEVELS = 256

#: Python can parse about 200 nested brackets.
_MOST_NESTED = 50


class FetchList(list[Any]):
    """A copy of what the ``parties`` of a run ask for, and its ``structure_key``."""

    __slots__ = ("key", "parties")

    def __init__(self, by_party: Iterable[tuple[str, Any]]) -> None:
        parties, parts = zip(*by_party, strict=True)
        super().__init__(map_leaves(lambda leaf: leaf, list(parts)))
        self.parties: tuple[str, ...] = parties
        self.key = FetchList, structure_key(list(self))


class KnownFetches:
    """Fetches that were asked for: recognized faster than by a key.

    Whatever is ``leaf`` is the same; it is this object itself if only the items can tell.
    """

    __slots__ = ("_items", "_kind", "leaf")

    def __init__(self, fetches: Any) -> None:
        self._kind = kind = type(fetches)
        is_flat = kind is tuple or kind is list or kind is dict
        # A copy: the list or dict of the caller may change.
        parts = (*fetches, *fetches.values()) if kind is dict else fetches
        items = tuple(parts) if is_flat else ()
        is_flat = is_flat and not any(isinstance(it, list | tuple | Mapping) for it in items)
        self._items = items if is_flat else None
        is_leaf = kind is FetchList or not isinstance(fetches, list | tuple | Mapping)
        self.leaf = fetches if is_leaf else self

    def is_the_same_as(self, fetches: Any) -> bool:
        """Return whether ``fetches`` are the same. False: they may be, in another spelling."""
        if fetches is self.leaf:
            return True
        known = self._items
        if known is None or type(fetches) is not self._kind:
            return False
        parts = (*fetches, *fetches.values()) if type(fetches) is dict else fetches
        return len(parts) == len(known) and all(map(is_, parts, known))


def structure_key(structure: Any, levels: int = _MOST_LEVELS) -> Any:
    """Return a key that is equal for two structures if one plan serves both."""
    kind = type(structure)
    if kind is Tensor or kind is Operation:
        return structure
    if kind is FetchList:
        return structure.key
    if levels == 0 and isinstance(structure, list | tuple | Mapping):
        raise ValueError(f"fetches must be nested at most {_MOST_LEVELS} levels deep, got more")
    below = levels - 1
    if kind is list or kind is tuple:
        return kind, *[structure_key(part, below) for part in structure]
    if issubclass(kind, _LEAVES):
        return structure
    if issubclass(kind, tuple | list):
        return kind, *[structure_key(part, below) for part in structure]
    if isinstance(structure, Mapping):
        parts = ((name, structure_key(part, below)) for name, part in structure.items())
        return kind, *[item for pair in parts for item in pair]
    return structure


def map_leaves(fn: Callable[[Any], Any], structure: Any) -> Any:
    return mapped(fn, structure, builtin_container_of)


def leaves(structure: Any) -> Iterator[Any]:
    return (leaf for _, leaf in walk(structure, of=builtin_container_of))


def tensors(structure: Any) -> tuple[Tensor, ...]:
    return tuple(dict.fromkeys(leaf for leaf in leaves(structure) if isinstance(leaf, Tensor)))


def reader(
    structure: Any, kind: type = Tensor, key: Callable[[Any], Any] = lambda leaf: leaf
) -> Callable[[Any], Any]:
    """Return a function from values to the structure.

    It has ``values[key(leaf)]`` for each leaf that is a ``kind``; others stay as they are.
    """
    if isinstance(structure, kind):
        return itemgetter(key(structure))
    # One expression of Python: every step calls it.
    names: dict[str, Any] = {}

    def named(value: Any) -> str:
        name = f"_{len(names)}"
        names[name] = value
        return name

    def source(part: Any, levels: int) -> str:
        if isinstance(part, kind):
            place = key(part)
            return f"values[{place if type(place) is int else named(place)}]"
        if levels and type(part) in (list, tuple):
            items = "".join(f"{source(item, levels - 1)}, " for item in part)
            return f"[{items}]" if type(part) is list else f"({items})"
        if levels and type(part) is dict:
            items = "".join(f"{named(k)}: {source(it, levels - 1)}, " for k, it in part.items())
            return f"{{{items}}}"
        if (container := builtin_container_of(part)) is not None:
            like, reads = container.like, [reader(it, kind, key) for _, it in container.items(part)]
            return f"{named(lambda values: like(part, [read(values) for read in reads]))}(values)"
        return named(part)

    return eval(f"lambda values: {source(structure, _MOST_NESTED)}", names)  # type: ignore[no-any-return]


def args_reader(args: tuple[Any, ...]) -> Callable[[Values], tuple[Any, ...]]:
    """As ``reader``, but arguments without tensors are passed on as they are."""
    if args and all(isinstance(arg, Tensor) for arg in args):
        return itemgetter(*args) if len(args) > 1 else lambda values: (values[args[0]],)
    readers = [reader(arg) if tensors(arg) else partial(_as_it_is, arg) for arg in args]
    return lambda values: tuple([read(values) for read in readers])


def _as_it_is(value: Any, values: Values) -> Any:
    return value
