"""Scalars: the one number in what a user gave, a number or an array of size 1."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.registry import library_of

_NUMPY_NUMBERS = (np.bool_, np.integer, np.float16, np.float32, np.float64)

#: Types of plain numbers, of Python and of NumPy. They never change.
NUMBERS: frozenset[type] = frozenset((float, int, bool)) | {
    kind for kind in np.sctypeDict.values() if issubclass(kind, _NUMPY_NUMBERS)
} - {np.timedelta64}


def read_number(value: Any) -> float:
    """Return the one real number in ``value``; waits until a device has computed it.

    Args:
        value: A number, or anything of size 1 that has ``item()`` or that NumPy can read.

    Raises:
        ValueError: It is not of size 1.
        TypeError: It is not a real number.
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
    """Return ``read_number`` of all ``values``, ``[n]``; waits for a device once.

    Raises:
        ValueError, TypeError: As ``read_number``.
    """
    if not NUMBERS.issuperset(map(type, values)):
        for value in values:
            library_of(value).start_copy(value)
        values = [read_number(value) for value in values]
    return np.frombuffer(array("d", values))
