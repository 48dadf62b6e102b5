"""Values that users give: an array of any library, a number, a string, or lists of these."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from runhooks.arrays.array_library import Array
from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.arrays.scalars import NUMBERS

_CONSTANTS = NUMBERS | {complex, str, bytes, type(None)}
_CONTAINERS = frozenset((list, tuple))
_READ_LATER = ("__array__", "__dlpack__", "numpy")
_RAGGED = "the elements of a list must all have the same shape: write each by itself"


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of a known library, or one that NumPy can read."""
    return library_of(value) is not NO_LIBRARY or hasattr(value, "__array__")


def snapshot(value: Any) -> Any:
    """Return ``value`` as it is now, whatever the caller does to it afterwards.

    A copy of what may still change; else ``value`` itself. A list or tuple of numbers becomes an
    array, any other a list of snapshots; what is no array, such as a ``range`` or a buffer, becomes
    what NumPy makes of it. Does not wait for a device.

    Raises:
        TypeError: Its values cannot be kept: a masked array, a traced one, or one that is spread
            over processes.
        ValueError: The elements of a list have different shapes.
    """
    kind = type(value)
    if kind in _CONSTANTS:
        return value
    if kind not in _CONTAINERS:
        library = library_of(value)
        if library is NO_LIBRARY and not any(hasattr(value, name) for name in _READ_LATER):
            return np.array(value)
        library.check_readable(value)
        return library.snapshot(value)
    if NUMBERS.issuperset(map(type, value)):
        return np.array(value)
    kept = list(map(snapshot, value))
    return _stacked(kept) if all(type(element) is np.ndarray for element in kept) else kept


def host_form(value: Any) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return the shape and dtype of ``to_numpy(value)``; does not wait for a device.

    None if the array does not tell them as NumPy does.

    Raises:
        ValueError: The elements of a list have different shapes.
    """
    if type(value) in _CONTAINERS and not _CONSTANTS.issuperset(map(type, value)):
        forms = [host_form(element) for element in value]
        known = [form for form in forms if form is not None]
        if len({shape for shape, _ in known}) > 1:
            raise ValueError(_RAGGED)
        if len(known) < len(forms):
            return None
        return (len(known), *known[0][0]), functools.reduce(_common, (it for _, it in known))
    library = library_of(value)
    if library is not NO_LIBRARY:
        try:
            return library.host_form(value)
        except (
            AttributeError,
            TypeError,
        ):  # neither shape and dtype as NumPy has them, nor its own
            return None
    if type(value) in _CONSTANTS or type(value) in _CONTAINERS:
        return np.shape(value), np.asarray(value).dtype
    return None


def to_numpy(value: Any) -> Array:
    """Return ``value`` as an array of NumPy, from any device; waits until it is computed.

    The elements of a list or tuple are read one by one and put together.

    Raises:
        ValueError: The elements of a list have different shapes.
    """
    if type(value) not in _CONTAINERS:
        return library_of(value).to_numpy(value)
    if not _CONSTANTS.issuperset(map(type, value)):
        value = list(map(to_numpy, value))
    return _stacked(value)


def _stacked(value: Any) -> Array:
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(_RAGGED) from None


def _common(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    try:
        return one if one == other else np.result_type(one, other)
    except TypeError:
        return np.dtype(object)
