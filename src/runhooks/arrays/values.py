"""Values that users give: a number, an array of any library, a string, or lists of these."""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.arrays.shards import Array

_NUMPY_NUMBERS = (np.bool_, np.integer, np.float16, np.float32, np.float64)

#: Types of plain numbers, of Python and of NumPy.
NUMBERS: frozenset[type] = frozenset((float, int, bool)) | {
    kind for kind in np.sctypeDict.values() if issubclass(kind, _NUMPY_NUMBERS)
} - {np.timedelta64}


def read_number(value: Any) -> float:
    """Return the one real number in ``value``; waits for the device.

    ValueError if it is not of size 1, TypeError if it is not real.
    """
    if isinstance(value, float | int):
        return float(value)
    holder = value if hasattr(value, "item") else library_of(value).to_numpy(value)
    shape = tuple(getattr(holder, "shape", ()))
    if math.prod(shape) != 1:
        raise ValueError(
            f"the value of a scalar must be a single number, got an array of shape {shape}"
        )
    number = holder.item()
    if not hasattr(number, "__float__"):
        raise TypeError(
            f"the value of a scalar must be a real number, got {type(value).__name__} {value!r}"
        )
    return float(number)


def read_numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """As ``read_number``, of several, ``[n]``; waits for the device once."""
    if not NUMBERS.issuperset(map(type, values)):
        for value in values:
            library_of(value).start_copy(value)
        values = [read_number(value) for value in values]
    return np.frombuffer(array("d", values))


_CONSTANTS = NUMBERS | {complex, str, bytes, type(None)}
_CONTAINERS = frozenset((list, tuple))
_CHANGING = (list, tuple, np.ndarray)
_READ_LATER = ("__array__", "__dlpack__", "numpy")
_RAGGED = "the elements of a list must all have the same shape: write each by itself"


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of a known library, or one that NumPy can read."""
    return library_of(value) is not NO_LIBRARY or hasattr(value, "__array__")


def snapshot(value: Any) -> Any:
    """Return ``value`` as it is now, copied if it may change; does not wait for a device.

    A list or tuple of numbers becomes an array, any other a list of snapshots. What is no array,
    such as a table of pandas, becomes what NumPy makes of it.

    Raises:
        TypeError: An array is masked, traced, or spread over processes.
        ValueError: The elements of a list have different shapes.
    """
    kind = type(value)
    if kind in _CONSTANTS:
        return value
    if kind not in _CONTAINERS:
        library = library_of(value)
        if library is NO_LIBRARY and _is_at_hand(value):
            return _as_now(np.array(np.asarray(value)))  # of a flatiter, the first is a view
        library.check_readable(value)
        kept = library.snapshot(value)
        return _as_now(kept) if type(kept) is np.ndarray else kept
    if NUMBERS.issuperset(map(type, value)):
        return np.array(value)
    kept = list(map(snapshot, value))
    return _stacked(kept) if all(type(element) is np.ndarray for element in kept) else kept


def _is_at_hand(value: Any) -> bool:
    """Whether NumPy can read ``value`` without waiting for a device."""
    # Tables of pandas have to_numpy; arrays of devices do not.
    is_host = isinstance(value, np.flatiter) or hasattr(value, "to_numpy")
    return is_host or not any(hasattr(value, name) for name in _READ_LATER)


def _as_now(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype != object:
        return array
    now = np.empty(array.shape, object)
    for place, element in np.ndenumerate(array):
        if isinstance(element, Mapping):
            now[place] = {key: snapshot(item) for key, item in element.items()}
        else:
            now[place] = snapshot(element) if isinstance(element, _CHANGING) else element
    return now


def host_form(value: Any) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return the shape and dtype of ``to_numpy(value)``, without waiting; None: not known.

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
        except (AttributeError, TypeError):  # it has no shape and dtype as NumPy's are
            return None
    if type(value) in _CONSTANTS or type(value) in _CONTAINERS:
        return np.shape(value), np.asarray(value).dtype
    return None


def to_numpy(value: Any) -> Array:
    """Return an array, or a list or tuple of arrays, as an array of NumPy; waits for the device.

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
