"""What a summary is given to write: kept as it is now, and read as real numbers later."""

from __future__ import annotations

from typing import Any

import numpy as np

_NOT_REAL = "cUSOMmT"


def as_now(values: Any) -> Any:
    """Return ``values``, or a copy if they are a NumPy array that somebody may still change."""
    if isinstance(values, np.ndarray) and values.flags.writeable:
        return values.copy()
    return values


def read_real_array(tag: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ``values`` as a NumPy array of bool, an integer or a float type, bfloat16 too.

    If a device still computes them, this waits.

    Raises TypeError, naming ``tag``, for any other type.
    """
    array = np.asarray(values)
    if array.dtype.kind in _NOT_REAL or array.dtype.names:
        raise TypeError(
            f"the values of summary {tag!r} must be real numbers, got {type(values).__name__} "
            f"of dtype {array.dtype}"
        )
    return array
