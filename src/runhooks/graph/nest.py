"""Nested structures of tensors: lists, tuples, named tuples and dicts, as fetches are given."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import is_, itemgetter
from typing import Any

from runhooks.graph.nodes import Operation, Tensor

Values = Mapping[Tensor, Any]

_LEAVES = (Tensor, Operation, str)

#: More than these, Python itself could not walk.
_MOST_LEVELS = 256

#: Python cannot parse more than some two hundred nested brackets.
_MOST_NESTED = 50


class FetchList(list[Any]):
    """What several parties of a run ask for, which is run again and again.

    It is a copy, whose key is computed once.

    Attributes:
        parties: Who asks for each item.
        key: As ``structure_key`` returns it.
    """

    __slots__ = ("key", "parties")

    def __init__(self, by_party: Iterable[tuple[str, Any]]) -> None:
        parties, parts = zip(*by_party, strict=True)
        super().__init__(map_leaves(lambda leaf: leaf, list(parts)))
        self.parties: tuple[str, ...] = parties
        self.key = FetchList, structure_key(list(self))


class KnownFetches:
    """Fetches that were asked for, by which the same ones are recognized faster than by a key.

    Attributes:
        leaf: Whatever is this very object is the same; itself if only the items can tell.
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
        """Return whether ``fetches`` are the same. False: perhaps they are, in another spelling."""
        if fetches is self.leaf:
            return True
        known = self._items
        if known is None or type(fetches) is not self._kind:
            return False
        parts = (*fetches, *fetches.values()) if type(fetches) is dict else fetches
        return len(parts) == len(known) and all(map(is_, parts, known))


def structure_key(structure: Any, levels: int = _MOST_LEVELS) -> Any:
    """Return a key that is equal for two structures if one plan serves both.

    Raises:
        ValueError: If it has more than ``levels`` levels.
    """
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
    """Return the same structure with ``fn`` of each leaf in its place."""
    if isinstance(structure, Mapping):
        items = [(name, map_leaves(fn, part)) for name, part in structure.items()]
        return OrderedDict(items) if isinstance(structure, OrderedDict) else dict(items)
    if isinstance(structure, list):
        return [map_leaves(fn, part) for part in structure]
    if isinstance(structure, tuple):
        return _like(structure, (map_leaves(fn, part) for part in structure))
    return fn(structure)


def leaves(structure: Any) -> Iterator[Any]:
    """Yield the leaves, in order."""
    if isinstance(structure, Mapping):
        structure = structure.values()
    elif not isinstance(structure, list | tuple):
        yield structure
        return
    for part in structure:
        yield from leaves(part)


def fields(value: Any) -> dict[str, Any] | None:
    """Return the values in a dict, a named tuple or a dataclass by name; None of others."""
    if type(value) is dict or isinstance(value, Mapping):
        return {str(key): it for key, it in value.items()}
    if isinstance(value, tuple):
        return dict(value._asdict()) if hasattr(value, "_asdict") else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {it.name: getattr(value, it.name) for it in dataclasses.fields(value)}
    return None


def tensors(structure: Any) -> tuple[Tensor, ...]:
    """Return the tensors among the leaves, each once, in order."""
    return tuple(dict.fromkeys(leaf for leaf in leaves(structure) if isinstance(leaf, Tensor)))


def reader(
    structure: Any, key: Callable[[Tensor], Any] = lambda tensor: tensor
) -> Callable[[Any], Any]:
    """Return a function from values to the structure with the value of each tensor in its place.

    ``values[key(tensor)]`` is the value of a tensor.
    """
    if isinstance(structure, Tensor):
        return itemgetter(key(structure))
    # Every step calls it, so it is one expression of Python that walks no structure.
    names: dict[str, Any] = {}
    expression = _expression(structure, key, names, _MOST_NESTED)
    return eval(f"lambda values: {expression}", names)  # type: ignore[no-any-return]


def _expression(part: Any, key: Callable[[Tensor], Any], names: dict[str, Any], levels: int) -> str:
    """Return ``part`` as source of up to ``levels`` brackets; ``names`` gets the names in it."""
    if isinstance(part, Tensor):
        place = key(part)
        return f"values[{place if type(place) is int else _named(place, names)}]"
    if levels and (type(part) is list or type(part) is tuple):
        items = "".join(f"{_expression(item, key, names, levels - 1)}, " for item in part)
        return f"[{items}]" if type(part) is list else f"({items})"
    if levels and type(part) is dict:
        named = ((_named(label, names), item) for label, item in part.items())
        items = "".join(f"{k}: {_expression(it, key, names, levels - 1)}, " for k, it in named)
        return f"{{{items}}}"
    if isinstance(part, list | tuple | Mapping):
        read = partial(map_leaves, structure=part)
        name = _named(
            lambda values: read(lambda it: values[key(it)] if isinstance(it, Tensor) else it), names
        )
        return f"{name}(values)"
    return _named(part, names)


def _named(value: Any, names: dict[str, Any]) -> str:
    name = f"_{len(names)}"
    names[name] = value
    return name


def args_reader(args: tuple[Any, ...]) -> Callable[[Values], tuple[Any, ...]]:
    """As ``reader``; an argument without tensors is passed on as it is, whatever it is."""
    if args and all(isinstance(arg, Tensor) for arg in args):
        return itemgetter(*args) if len(args) > 1 else lambda values: (values[args[0]],)
    readers = [reader(arg) if tensors(arg) else partial(_constant, arg) for arg in args]
    return lambda values: tuple([read(values) for read in readers])


def _constant(value: Any, values: Values) -> Any:
    return value


def _like(original: tuple[Any, ...], parts: Iterator[Any]) -> tuple[Any, ...]:
    if hasattr(original, "_make"):
        return original._make(parts)  # type: ignore[no-any-return]
    return tuple(parts)
