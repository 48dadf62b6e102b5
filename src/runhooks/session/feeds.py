"""Checks and conversions of fed values: one function for each tensor, made once per plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

import numpy as np

from runhooks.arrays.array_library import ArrayLibrary
from runhooks.arrays.numpy import ARRAYS as NUMPY
from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.graph.base import Framework
from runhooks.graph.nodes import Operation, Tensor, Variable

_ARRAYS = (np.ndarray, np.generic)
_NUMBERS = (bool, int, float, complex)

Converter = Callable[[Any], Any]

_PARTS = (Tensor, Operation)
_FEED_DICT = (Mapping, NoneType)


def check_arguments(engine: Framework, feed_dict: Any, options: Any, run_metadata: Any) -> None:
    """Raise ValueError or TypeError if these are no arguments of ``Session.run``."""
    if type(feed_dict) is not dict and not isinstance(feed_dict, _FEED_DICT):
        raise TypeError(
            f"feed_dict must map tensors to values, got {feed_dict!r}; "
            "to fetch several tensors, give them as one list"
        )
    if options is not None or run_metadata is not None:
        raise ValueError(
            f"the {engine.name} engine has neither run options nor run metadata: "
            "options and run_metadata must be None"
        )


def converter(tensor: Tensor, put: Converter | None = None) -> Converter:
    """Return a function from the caller's value to the one to feed, which raises naming the tensor.

    A list becomes an array. For a placeholder with a dtype, arrays of the same kind are converted,
    as float64 to float32; floats do not become integers. What is fed to a variable is not ``put``.
    """
    if isinstance(tensor, Variable) and tensor.on_host:
        return lambda value: _array(tensor, value, np.dtype(np.int64), ())[()]
    is_placeholder = tensor.op.type in ("Placeholder", "PlaceholderWithDefault")
    dtype, shape = tensor.op.args if is_placeholder else (None, None)
    is_any = dtype is None and shape is None
    convert = _alike(tensor) if is_any else _formed(tensor, dtype, shape)
    if put is None or isinstance(tensor, Variable):
        return convert
    return lambda value: put(convert(value))


def _alike(tensor: Tensor) -> Converter:
    """Return the converter of a tensor that takes any value; its class says if it is fed as is."""
    fed_as_is: type | None = None

    def convert(value: Any) -> Any:
        nonlocal fed_as_is
        if value.__class__ is fed_as_is:
            return value
        converted = _any_value(tensor, value)
        if converted is value:
            fed_as_is = value.__class__
        return converted

    return convert


def _formed(
    tensor: Tensor, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None
) -> Converter:
    """Return the converter of a tensor with a dtype or a shape, which knows what fits as it is."""
    kind: Any = None
    its_dtype: Any = None
    its_shape: Any = None

    def convert(value: Any) -> Any:
        nonlocal kind, its_dtype, its_shape
        if value.__class__ is kind and value.dtype == its_dtype and value.shape == its_shape:
            return value
        converted = _array(tensor, value, dtype, shape)
        if converted is value and isinstance(value, _ARRAYS):
            kind, its_dtype, its_shape = value.__class__, value.dtype, value.shape
        return converted

    return convert


def _any_value(tensor: Tensor, value: Any) -> Any:
    if value.__class__ is list:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"feed_dict: {tensor.name!r} must be fed an array: {error}") from None
        return value if array.dtype.hasobject else array
    if value is None or isinstance(value, _PARTS):
        raise TypeError(f"feed_dict: {tensor.name!r} must be fed a value, got {value!r}")
    if isinstance(tensor, Variable) and isinstance(value, _NUMBERS):
        return np.asarray(value)
    return value


def _array(
    tensor: Tensor, value: Any, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None
) -> Any:
    value = _any_value(tensor, value)
    if not isinstance(value, _ARRAYS) and (library := library_of(value)) not in (NUMPY, NO_LIBRARY):
        return _library_array(tensor, library, value, dtype, shape)
    array: Any = value if isinstance(value, _ARRAYS) else np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"feed_dict: {tensor.name!r} must be fed an array, got {type(value).__name__}"
        )
    _check_shape(tensor, array.shape, shape)
    return array if dtype is None or array.dtype == dtype else _cast(tensor, array, dtype)


def _library_array(
    tensor: Tensor,
    library: ArrayLibrary,
    value: Any,
    dtype: np.dtype[Any] | None,
    shape: tuple[int | None, ...] | None,
) -> Any:
    """Check an array of another library, which stays where it is unless it must be converted."""
    its_shape, its_dtype = library.host_form(value)
    _check_shape(tensor, its_shape, shape)
    if dtype is None or its_dtype == dtype:
        return value
    _check_cast(tensor, its_dtype, dtype)
    if hasattr(value, "astype"):
        return value.astype(dtype)
    return library.from_numpy(_cast(tensor, library.to_numpy(value), dtype), value)


def _check_shape(
    tensor: Tensor, got: tuple[int, ...], shape: tuple[int | None, ...] | None
) -> None:
    if shape is not None and not (
        len(got) == len(shape)
        and all(want is None or want == size for size, want in zip(got, shape, strict=True))
    ):
        raise ValueError(
            f"feed_dict: {tensor.name!r} must have the shape {_text(shape)}, got {_text(got)}"
        )


def _cast(tensor: Tensor, array: Any, dtype: np.dtype[Any]) -> Any:
    _check_cast(tensor, array.dtype, dtype)
    cast = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"feed_dict: {tensor.name!r} is {dtype}, which cannot hold all of {array}")
    return cast


def _check_cast(tensor: Tensor, dtype: Any, into: np.dtype[Any]) -> None:
    if into.kind == "V":  # bfloat16 and its like, which NumPy casts but has no kind for
        may_cast = dtype.kind in "fV"
    elif into.kind in "iu" and dtype.kind in "iu":  # the values decide
        may_cast = True
    else:
        try:
            may_cast = np.can_cast(dtype, into, "same_kind")
        except TypeError:
            may_cast = False
    if not may_cast:
        raise TypeError(
            f"feed_dict: {tensor.name!r} must have the dtype {into}, got {dtype}: convert it "
            "before feeding it"
        )


def _text(shape: tuple[int | None, ...]) -> str:
    return str(["any" if size is None else size for size in shape]).replace("'", "")
