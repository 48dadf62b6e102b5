"""Trees of arrays: what users give as an example of the structure that they want back."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from runhooks.arrays.array_library import Array, Flat, is_same_kind
from runhooks.arrays.registry import NO_LIBRARY, flattened, library_describing, library_of


class Form(NamedTuple):
    """The form of an array on the host; ``dtype`` is None for a number of Python's own."""

    shape: tuple[int, ...]
    dtype: Any


def flatten(tree: Any) -> Flat:
    """Return the leaves of ``tree`` by path, such as ``"layers/0/kernel"``, and how to rebuild it.

    Dicts, lists, tuples and named tuples are trees, and whatever classes an array library in use
    knows as such. None has no leaves; ``""`` is the path of a bare leaf.
    """
    if type(tree) in (dict, OrderedDict):
        return _joined(tree.items(), lambda parts: _with_items(tree, parts))
    if type(tree) in (list, tuple):
        return _joined(enumerate(tree), lambda parts: type(tree)(parts))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _joined(zip(tree._fields, tree, strict=True), lambda parts: type(tree)(*parts))
    if tree is None:
        return Flat([], lambda _: None)
    return flattened(tree) or Flat([("", tree)], lambda leaves: leaves[0])


def form_of(leaf: Any) -> Form | None:
    """Return the form of an array, of a number, or of what describes an array; None of others."""
    if type(leaf) in (bool, int, float, complex):
        return Form((), None)
    library = _library(leaf)
    return None if library is NO_LIBRARY else Form(*library.host_form(leaf))


def place(array: Array, like: Any) -> Any:
    """Return ``array`` with the dtype and on the devices of ``like``, whose shape it has.

    Args:
        array: What to place, in memory that nothing else uses.
        like: An array, a number, or what describes an array.

    Raises:
        ValueError: The dtype of ``like`` cannot hold the values.
    """
    if type(like) in (bool, int, float, complex):
        number = array.item()
        if type(number) is not type(like):
            raise ValueError(f"it is {array.dtype}, and not {type(like).__name__}")
        return number
    library = _library(like)
    return library.place(cast(array, library.host_form(like)[1]), like)


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``array`` with another dtype of its kind: floats as floats, integers as integers.

    Raises:
        ValueError: The dtype is of another kind, or an integer is too large for it.
    """
    if array.dtype == dtype:
        return array
    if not is_same_kind(array.dtype, dtype):
        raise ValueError(f"it is {array.dtype}, which does not become {dtype}")
    with np.errstate(over="ignore"):
        new = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(new, array):
        raise ValueError(f"it is {array.dtype}, with values too large for {dtype}")
    return new


def _library(leaf: Any) -> Any:
    library = library_of(leaf)
    return library_describing(leaf) if library is NO_LIBRARY else library


def _joined(items: Any, rebuild: Callable[[list[Any]], Any]) -> Flat:
    parts = [(str(key), flatten(item)) for key, item in items]

    def whole(leaves: Sequence[Any]) -> Any:
        rest = iter(leaves)
        return rebuild([part.rebuild([next(rest) for _ in part.leaves]) for _, part in parts])

    return Flat(list(_prefixed(parts)), whole)


def _prefixed(parts: Sequence[tuple[str, Flat]]) -> Iterator[tuple[str, Any]]:
    for key, part in parts:
        for path, leaf in part.leaves:
            yield f"{key}/{path}" if path else key, leaf


def _with_items(tree: Any, parts: Sequence[Any]) -> Any:
    new = copy.copy(tree)  # with its attributes: state dicts of torch have versions in one
    new.update(zip(tree, parts, strict=True))
    return new
