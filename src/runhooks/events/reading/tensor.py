"""Tensors as event files hold them: all dtypes, as bytes or as numbers one by one.

Format: TensorFlow's ``tensor.proto`` and ``types.proto``.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.spans import (
    LENGTH_DELIMITED,
    VARINT,
    Span,
    signed,
    spans,
    varint_at,
)

STRING = 7
_BFLOAT16, _FLOAT8_E5M2, _FLOAT8_E4M3FN = 14, 24, 25

#: Number of a type: what NumPy calls it.
_DTYPES = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "u1",
    5: "<i2",
    6: "i1",
    8: "<c8",
    9: "<i8",
    10: "?",
    14: "<u2",  # bfloat16, until it is widened
    17: "<u2",
    18: "<c16",
    19: "<f2",
    22: "<u4",
    23: "<u8",
    24: "u1",  # likewise
    25: "u1",
}
#: Number of a field of numbers: the format of one, or None for varints.
_FIELDS = {5: "<f", 6: "<d", 7: None, 9: "<f", 10: None, 11: None, 12: "<d", 13: None}
_FIELDS |= {16: None, 17: None}
_STRING_FIELD = 8
_MOST_BYTES = 1 << 26  # of an array that is given by fewer numbers than it has


class ParsedTensor(NamedTuple):
    """``dtype``: the number of the type. ``content``: where its bytes are, or None."""

    dtype: int
    shape: tuple[int, ...]
    content: Span | None
    numbers: list[Span]
    strings: list[Span]


def parse_tensor(message: bytes, begin: int, end: int) -> ParsedTensor:
    """Return where all is in the TensorProto at ``message[begin:end]``. Raises ValueError."""
    dtype, content = 0, None
    shape: tuple[int, ...] = ()
    numbers, strings = list[Span](), list[Span]()
    for span in spans(message, begin, end):
        if span.number == 1 and span.wire_type == VARINT:
            dtype = span.value
        elif span.number == 2 and span.wire_type == LENGTH_DELIMITED:
            shape = _shape(message, span)
        elif span.number == 4 and span.wire_type == LENGTH_DELIMITED:
            content = span
        elif span.number == _STRING_FIELD and span.wire_type == LENGTH_DELIMITED:
            strings.append(span)
        elif span.number in _FIELDS:
            numbers.append(span)
    return ParsedTensor(dtype, shape, content, numbers, strings)


def _shape(message: bytes, span: Span) -> tuple[int, ...]:
    sizes = []
    for dim in spans(message, span.begin, span.end):
        if dim.number == 2 and dim.wire_type == LENGTH_DELIMITED:
            of_dim = spans(message, dim.begin, dim.end)
            sizes.append(sum(signed(s.value) for s in of_dim if s.number == 1))
        if dim.number == 3 and dim.value:
            raise ValueError("a tensor in an event file must have a known shape")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a tensor must have sizes of 0 or more, got {sizes}")
    return tuple(sizes)


def tensor_array(message: bytes, begin: int, end: int) -> NDArray[Any]:
    """Return the tensor at ``message[begin:end]``: strings as an object array of bytes.

    bfloat16 and float8 come as float32. Raises ValueError if it is none, or of a type that has no
    array.
    """
    tensor = parse_tensor(message, begin, end)
    if tensor.dtype == STRING:
        strings = [message[span.begin : span.end] for span in tensor.strings]
        array = np.empty(len(strings), object)
        array[:] = strings
        return _filled(array, tensor.shape)
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"a tensor must be of a type that NumPy has, got the type {tensor.dtype}")
    dtype = np.dtype(_DTYPES[tensor.dtype])
    if tensor.content is not None and tensor.content.end > tensor.content.begin:
        flat = np.frombuffer(message[tensor.content.begin : tensor.content.end], dtype)
        if flat.size != math.prod(tensor.shape):
            raise ValueError(f"a tensor of shape {tensor.shape} has {flat.size} elements")
    else:
        flat = _filled(_numbers(message, tensor, dtype), tensor.shape)
    return _widened(tensor.dtype, flat).reshape(tensor.shape)


def _widened(dtype: int, flat: NDArray[Any]) -> NDArray[Any]:
    """Return ``flat`` as float32 if it holds the bits of a type that NumPy has not."""
    if dtype == _BFLOAT16:
        return (flat.astype(np.uint32) << 16).view(np.float32)
    if dtype == _FLOAT8_E5M2:
        return (flat.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == _FLOAT8_E4M3FN:
        return _float8_e4m3fn().take(flat)
    return flat


@functools.cache
def _float8_e4m3fn() -> NDArray[np.float32]:
    """Return the number for each byte: 4 bits of exponent, 3 of mantissa, NaN but no infinity."""
    magnitudes = np.arange(128)
    exponents, mantissas = np.divmod(magnitudes, 8)
    least = np.ldexp(mantissas.astype(np.float32), -9)
    numbers = np.where(exponents, np.ldexp(1 + mantissas / 8, exponents - 7), least)
    numbers[-1] = np.nan
    return np.concatenate((numbers, -numbers)).astype(np.float32)


def _numbers(message: bytes, tensor: ParsedTensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    numbers: list[Any] = []
    for span in tensor.numbers:
        numbers += _numbers_of(message, span)
    if dtype.kind == "c":
        pairs = np.array(numbers, np.float64)
        return pairs.view(np.complex128).astype(dtype)
    if dtype.kind == "f" and dtype.itemsize == 2:  # sent as its bits
        return (np.array(numbers, np.int64) & 0xFFFF).astype(np.uint16).view(dtype)
    return np.array(numbers, np.float64 if dtype.kind == "f" else np.int64).astype(dtype)


def _numbers_of(message: bytes, span: Span) -> list[Any]:
    number_format = _FIELDS[span.number]
    if span.wire_type == VARINT:
        return [signed(span.value)] if number_format is None else []
    if number_format is not None:
        item = struct.Struct(number_format)
        packed = message[span.begin : span.end]
        if len(packed) % item.size:
            raise ValueError(f"a tensor has {len(packed)} bytes of numbers of {item.size} bytes")
        return [number for (number,) in item.iter_unpack(packed)]
    at, found = span.begin, []
    while at < span.end:
        value, at = varint_at(message, at, span.end)
        found.append(signed(value))
    return found


def _filled(flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return ``flat`` in that shape: its last element stands for all that are missing."""
    size = math.prod(shape)
    if flat.size > size or (size and not flat.size and flat.dtype == object):
        raise ValueError(f"a tensor of shape {shape} has {flat.size} elements")
    if flat.size < size:
        if size * flat.itemsize > _MOST_BYTES:
            raise ValueError(f"a tensor of shape {shape} has only {flat.size} elements")
        last = flat[-1] if flat.size else 0
        flat = np.concatenate([flat, np.full(size - flat.size, last, flat.dtype)])
    return flat.reshape(shape)
