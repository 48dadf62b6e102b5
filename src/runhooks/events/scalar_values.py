"""The value of a scalar: read from what was given, one number or an array of one; and encoded.

Libraries are known by what their arrays can do; none is imported for it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.events import wire

_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2  # of TensorFlow's summary.proto

_NUMPY_NUMBERS = (np.bool_, np.integer, np.float16, np.float32, np.float64)

#: Types of plain numbers, of Python and of NumPy: they hold one, and do not change.
NUMBERS: frozenset[type] = frozenset((float, int, bool)) | {
    kind for kind in np.sctypeDict.values() if issubclass(kind, _NUMPY_NUMBERS)
} - {np.timedelta64}


def scalar_entry(tag: str, number: float) -> bytes:
    """Return the entry of a summary that says that ``tag`` is ``number``, as float32.

    Its last 4 bytes are the number. Raises UnicodeEncodeError if ``tag`` is no text.
    """
    content = wire.bytes_field(_TAG, tag.encode()) + wire.float_field(_SIMPLE_VALUE, number)
    return wire.bytes_field(_VALUE, content)


def read_number(value: Any) -> float:
    """Return the one real number in ``value``; if a device still computes it, this waits.

    ``value``: a number, or anything of size 1 that has ``item()`` or becomes an array of NumPy.

    Raises ValueError if it is not of size 1, TypeError if it is no real number.
    """
    if isinstance(value, float | int):
        return float(value)
    holder = _with_item(value)
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


def _with_item(value: Any) -> Any:
    if hasattr(value, "item"):
        return value
    # TensorFlow's: its __array__ does not give an array for one bfloat16.
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def read_numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return ``read_number`` of all ``values``: ``[n]``; what a device computes is waited for once.

    Raises what ``read_number`` does.
    """
    if not NUMBERS.issuperset(map(type, values)):
        for value in values:
            if hasattr(value, "copy_to_host_async"):
                value.copy_to_host_async()
        values = [read_number(value) for value in values]
    return np.frombuffer(array("d", values))
