"""Checks of what is fed, made once per plan: a function for each tensor from the caller's value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable

Converter = Callable[[Any], Any]

_PARTS = (Tensor, Operation)


def converter(tensor: Tensor) -> Converter:
    """A function that returns the value to feed, or raises TypeError or ValueError naming it.

    A list becomes an array. For a placeholder with a dtype, arrays of the same kind are cast, as
    float64 is to float32, and floats are not made integers.
    """
    if isinstance(tensor, Variable) and tensor.on_host:
        return lambda value: _array(tensor, value, np.dtype(np.int64), ())[()]
    dtype, shape = tensor.op.args if tensor.op.type == "Placeholder" else (None, None)
    if dtype is None and shape is None:
        return partial(_any_value, tensor)
    return lambda value: _array(tensor, value, dtype, shape)


def _any_value(tensor: Tensor, value: Any) -> Any:
    if value.__class__ is list:
        return _from_list(tensor, value)
    if value is None or isinstance(value, _PARTS):
        raise TypeError(f"feed_dict: {tensor.name!r} must be fed a value, got {value!r}")
    return value


def _from_list(tensor: Tensor, value: list[Any]) -> Any:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"feed_dict: {tensor.name!r} must be fed an array: {error}") from None
    return value if array.dtype.hasobject else array


def _array(
    tensor: Tensor, value: Any, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None
) -> Any:
    value = _any_value(tensor, value)
    array = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(value)
    if getattr(array.dtype, "hasobject", False):
        raise TypeError(
            f"feed_dict: {tensor.name!r} must be fed an array, got {type(value).__name__}"
        )
    if shape is not None and not _matches(array.shape, shape):
        raise ValueError(
            f"feed_dict: {tensor.name!r} must have the shape {_text(shape)}, "
            f"got {_text(array.shape)}"
        )
    return array if dtype is None or array.dtype == dtype else _cast(tensor, array, dtype)


def _cast(tensor: Tensor, array: Any, dtype: np.dtype[Any]) -> Any:
    if not _may_cast(array.dtype, dtype):
        raise TypeError(
            f"feed_dict: {tensor.name!r} must have the dtype {dtype}, got {array.dtype}: "
            "convert it before feeding it"
        )
    cast = array.astype(dtype)
    if dtype.kind in "iu" and isinstance(array, np.ndarray) and not np.array_equal(cast, array):
        raise ValueError(f"feed_dict: {tensor.name!r} is {dtype}, which cannot hold all of {array}")
    return cast


def _matches(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        want is None or want == size for size, want in zip(shape, expected, strict=True)
    )


def _may_cast(dtype: Any, into: np.dtype[Any]) -> bool:
    if into.kind == "V":  # bfloat16 and its like, which NumPy casts but has no kind for
        return dtype.kind in "fV"
    if into.kind in "iu" and dtype.kind in "iu":  # the values decide
        return True
    try:
        return bool(np.can_cast(dtype, into, "same_kind"))
    except TypeError:
        return False


def _text(shape: tuple[int | None, ...]) -> str:
    return str(["any" if size is None else size for size in shape]).replace("'", "")
