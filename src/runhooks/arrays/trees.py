"""Trees: containers are taken apart, and made again of other parts."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from runhooks.arrays.array_library import Flat, is_same_kind
from runhooks.arrays.registry import NO_LIBRARY, flattened, library_describing
from runhooks.arrays.shards import Array


class Container(NamedTuple):
    """How to get the keys and parts of a container, and one like it of other parts."""

    items: Callable[[Any], Iterable[tuple[Any, Any]]]
    like: Callable[[Any, list[Any]], Any]
    is_named: bool = True  # the keys are the user's names


#: Says how a value is a container; None: it is a leaf.
Containers: TypeAlias = Callable[[Any], "Container | None"]

_known: dict[type, Container | None] = {}


def container_of(value: Any) -> Container | None:
    """Return how to take ``value`` apart; None: it is a leaf.

    Containers are mappings, lists, tuples, named tuples, dataclasses, and None, which is empty.
    """
    kind = type(value)
    if kind not in _known:
        _known[kind] = _container_of(kind)
    return _known[kind]


def builtin_container_of(value: Any) -> Container | None:
    """As ``container_of``, but dataclasses and None are leaves.

    A tuple of a subclass that is no named tuple becomes a plain tuple.
    """
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return container_of(())
    return container_of(value) if isinstance(value, Mapping | list | tuple) else None


def walk(
    tree: Any, path: str = "", of: Containers = container_of, separator: str = "/"
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of ``tree``, which is at ``path``, as ``("layers/0/kernel", leaf)``."""
    container = of(tree)
    if container is None:
        yield path, tree
        return
    begin = f"{path}{separator}" if path else ""
    for key, part in container.items(tree):
        if of(part) is None:  # without a generator for each leaf
            yield f"{begin}{key}", part
        else:
            yield from walk(part, f"{begin}{key}", of, separator)


def mapped(fn: Callable[[Any], Any], tree: Any, of: Containers = container_of) -> Any:
    container = of(tree)
    if container is None:
        return fn(tree)
    return container.like(tree, [mapped(fn, part, of) for _, part in container.items(tree)])


def with_leaves(tree: Any, leaves: Iterable[Any], of: Containers = container_of) -> Any:
    rest = iter(leaves)
    return mapped(lambda _: next(rest), tree, of)


def by_path(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict; ValueError if two have one path, as in ``{"a/b": x, "a": {"b": y}}``."""
    found: dict[str, Any] = {}
    for path, leaf in leaves:
        if path in found:
            raise ValueError(f"two leaves of one value have the path {path!r}: rename a key")
        found[path] = leaf
    return found


def fields(value: Any) -> dict[str, Any] | None:
    """Return the parts of a container that ``is_named``, by name; else None."""
    container = container_of(value)
    if container is None or not container.is_named:
        return None
    return {str(key): part for key, part in container.items(value)}


def as_dict(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a copy of an ``OrderedDict`` or ``Counter``; of any other mapping, a plain dict."""
    return _mapping_like(mapping, list(mapping.values()))


def _container_of(kind: type) -> Container | None:
    if issubclass(kind, Mapping):
        return Container(lambda it: it.items(), _mapping_like)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Container(lambda it: it._asdict().items(), lambda it, parts: it._make(parts))
    if issubclass(kind, list | tuple):
        make = kind if issubclass(kind, tuple) else list
        return Container(enumerate, lambda it, parts: make(parts), is_named=False)
    if dataclasses.is_dataclass(kind):
        return Container(_fields_of, _record_like)
    if kind is NoneType:
        return Container(lambda it: (), lambda it, parts: None, is_named=False)
    return None


def _mapping_like(mapping: Any, parts: list[Any]) -> dict[Any, Any]:
    new = dict(zip(mapping, parts, strict=True))
    if type(mapping) not in (OrderedDict, Counter):
        return new
    made: dict[Any, Any] = type(mapping)(new)
    vars(made).update(vars(mapping))  # state dicts of torch have versions in one
    return made


def _fields_of(record: Any) -> Iterable[tuple[str, Any]]:
    return [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]


def _record_like(record: Any, parts: list[Any]) -> Any:
    changed = copy.copy(record)
    for (name, _), part in zip(_fields_of(record), parts, strict=True):
        object.__setattr__(changed, name, part)  # it may be frozen
    return changed


class Form(NamedTuple):
    shape: tuple[int, ...]
    dtype: Any  # None for a number of Python's own


def flatten(tree: Any) -> Flat:
    """Take apart containers, as of ``container_of``, and what an array library in use knows."""
    return Flat(list(walk(tree, of=_tree_of)), partial(with_leaves, tree, of=_tree_of))


def _tree_of(value: Any) -> Container | None:
    flat = None if type(value) in _PLAIN else flattened(value)
    if flat is not None:
        return Container(lambda _: flat.leaves, lambda _, parts: flat.rebuild(parts))
    return container_of(value)


_PLAIN = frozenset((dict, OrderedDict, list, tuple, NoneType))


def form_of(leaf: Any) -> Form | None:
    """Return the form of a number, an array, or what describes one; else None."""
    if type(leaf) in (bool, int, float, complex):
        return Form((), None)
    library = library_describing(leaf)
    return None if library is NO_LIBRARY else Form(*library.host_form(leaf))


def place(array: Array, like: Any) -> Any:
    """Return ``array`` with the dtype and devices of ``like``; ValueError if that cannot hold it.

    Nothing else may use the memory of ``array``.
    """
    if type(like) in (bool, int, float, complex):
        number = array.item()
        if type(number) is not type(like):
            raise ValueError(f"it is {array.dtype}, and not {type(like).__name__}")
        return number
    library = library_describing(like)
    return library.place(cast(array, library.host_form(like)[1]), like)


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``array`` with another dtype of its kind; ValueError if that cannot hold it."""
    if array.dtype == dtype:
        return array
    if not is_same_kind(array.dtype, dtype):
        raise ValueError(f"it is {array.dtype}, which does not become {dtype}")
    is_integer = is_same_kind(array.dtype, np.dtype(np.int64))
    # NumPy compares int4 with no other integers, and makes no uint4 of it.
    values = array.astype(np.int64) if is_integer and array.dtype.kind == "V" else array
    with np.errstate(over="ignore"):
        new = values.astype(dtype)
    fits = np.array_equal(new, values) if is_integer else _is_as_finite(new, values)
    if not fits:
        raise ValueError(f"it is {array.dtype}, with values too large for {dtype}")
    return new


def _is_as_finite(new: Array, old: Array) -> bool:
    lost = ~np.isfinite(new)
    return not lost.any() or not np.isfinite(old[lost]).any()
