"""What a summary is given to write: kept as it is now, and read as numbers later.

Libraries are known by what their arrays can do; none is imported for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks.events.scalar_values import NUMBERS

#: Types of what cannot change, and is no array.
_CONSTANTS = NUMBERS | {str, bytes, type(None)}
_CONTAINERS = frozenset((list, tuple))
_NOT_REAL = "cUSOMmT"


def as_now(values: Any) -> Any:
    """Return ``values``, or a copy if they may still change; does not wait for a device.

    Copied are an array of NumPy that can be written to, a tensor of PyTorch, a variable of
    TensorFlow, an array of JAX, which a later step may be given as its own, and lists and tuples
    with all that is in them. Raises TypeError for a masked array.
    """
    if type(values) in _CONTAINERS:
        constant = _CONSTANTS.issuperset(map(type, values))
        return type(values)(values if constant else map(as_now, values))
    if isinstance(values, np.ndarray):
        _refuse_masked(values)
        return values.copy() if values.flags.writeable else values
    if hasattr(values, "is_deleted"):
        return _copied_by_jax(values)
    if _is_torch(values):
        return values.detach().clone()
    return values.read_value() if hasattr(values, "read_value") else values


def read_array(values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ``values`` as a NumPy array, from any device; if it still computes them, this waits.

    Types of PyTorch that NumPy has not, bfloat16 among them, become float32; its sparse tensors
    become dense. Of a list or tuple all elements are read so, and put together.
    """
    if type(values) in _CONTAINERS and not _CONSTANTS.issuperset(map(type, values)):
        values = list(map(read_array, values))
    try:
        return _array(values)
    except ValueError:
        if type(values) not in _CONTAINERS:
            raise
        raise ValueError(
            "the parts of a list must all have one shape, got different ones: write each by itself"
        ) from None


def _array(values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if getattr(values, "is_sparse", False):
        values = values.to_dense()
    if not _is_torch(values):
        # np.asarray fails on a single bfloat16 of TensorFlow.
        return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
    try:
        return np.asarray(values.numpy(force=True))
    except TypeError:
        return np.asarray(values.float().numpy(force=True))


def read_real_array(tag: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ``values`` as a NumPy array of bool, an integer or a float type, bfloat16 too.

    If a device still computes them, this waits.

    Raises TypeError, naming ``tag``, for any other type.
    """
    array = read_array(values)
    if array.dtype.kind in _NOT_REAL or array.dtype.names:
        raise TypeError(
            f"the values of summary {tag!r} must be real numbers, got {type(values).__name__} "
            f"of dtype {array.dtype}"
        )
    return array


def as_float(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ``array`` as float32, or float64 if its numbers may need that."""
    return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)


def _refuse_masked(array: Any) -> None:
    if type(array) is not np.ndarray and hasattr(array, "mask"):
        raise TypeError(
            "a masked array cannot be written: give array.compressed(), or array.filled(number)"
        )


def _copied_by_jax(array: Any) -> Any:
    # Of a single number, its maximum: five times faster than to say copy.
    return array.copy() if array.ndim else array.max()


def _is_torch(values: Any) -> bool:
    return hasattr(values, "detach") and hasattr(values, "clone")
