"""Tensors in event files, of all dtypes, stored as bytes or as numbers one by one.

Format: TensorFlow's ``tensor.proto`` and ``types.proto``.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import (
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    locate_fields,
    signed,
    varint_at,
)

STRING = 7
_BFLOAT16, _FLOAT8_E5M2, _FLOAT8_E4M3FN = 14, 24, 25

#: NumPy's names of the types, by number.
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
#: The formats of the fields of numbers, None for varints.
_FIELDS = {5: "<f", 6: "<d", 7: None, 9: "<f", 10: None, 11: None, 12: "<d", 13: None}
_FIELDS |= {16: None, 17: None, 18: "B"}
_STRING_FIELD = 8
_MOST_BYTES = 1 << 26  # of an array whose last number is repeated


class ParsedTensor(NamedTuple):
    """The fields of a tensor; ``dtype`` is the number of its type, ``content`` bytes or None."""

    dtype: int
    shape: tuple[int, ...]
    content: LocatedField | None
    numbers: list[LocatedField]
    strings: list[LocatedField]


def parse_tensor(message: bytes, begin: int, end: int) -> ParsedTensor:
    """Return the fields of the TensorProto at ``message[begin:end]``. Raises ValueError."""
    dtype, content = 0, None
    shape: tuple[int, ...] = ()
    numbers, strings = list[LocatedField](), list[LocatedField]()
    for field in locate_fields(message, begin, end):
        if field.number == 1 and field.wire_type == VARINT:
            dtype = field.value
        elif field.number == 2 and field.wire_type == LENGTH_DELIMITED:
            shape = _shape(message, field)
        elif field.number == 4 and field.wire_type == LENGTH_DELIMITED:
            content = field
        elif field.number == _STRING_FIELD and field.wire_type == LENGTH_DELIMITED:
            strings.append(field)
        elif field.number in _FIELDS:
            numbers.append(field)
    return ParsedTensor(dtype, shape, content, numbers, strings)


def _shape(message: bytes, field: LocatedField) -> tuple[int, ...]:
    sizes = []
    for dim in locate_fields(message, field.begin, field.end):
        if dim.number == 2 and dim.wire_type == LENGTH_DELIMITED:
            of_dim = locate_fields(message, dim.begin, dim.end)
            sizes.append(sum(signed(s.value) for s in of_dim if s.number == 1))
        if dim.number == 3 and dim.value:
            raise ValueError("a tensor in an event file must have a known shape")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a tensor must have sizes of 0 or more, got {sizes}")
    return tuple(sizes)


def tensor_array(message: bytes, begin: int, end: int) -> NDArray[Any]:
    """Return the tensor at ``message[begin:end]``; strings as an object array of bytes.

    bfloat16 and float8 are returned as float32.

    Raises:
        ValueError: If it is malformed, or of a type that NumPy does not have.
    """
    tensor = parse_tensor(message, begin, end)
    if tensor.dtype == STRING:
        strings = [message[field.begin : field.end] for field in tensor.strings]
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
    """Return ``flat`` as float32 if it holds the bits of a type that NumPy does not have."""
    if dtype == _BFLOAT16:
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == _FLOAT8_E5M2:
        return (flat.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
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
    for field in tensor.numbers:
        numbers += _numbers_of(message, field)
    if dtype.kind == "c":
        pairs = np.array(numbers, np.float64)
        return pairs.view(np.complex128).astype(dtype)
    if dtype.kind == "f" and dtype.itemsize == 2:  # stored as its bits
        return (np.array(numbers, np.int64) & 0xFFFF).astype(np.uint16).view(dtype)
    return np.array(numbers, np.float64 if dtype.kind == "f" else np.int64).astype(dtype)


def _numbers_of(message: bytes, field: LocatedField) -> list[Any]:
    number_format = _FIELDS[field.number]
    if field.wire_type == VARINT:
        return [signed(field.value)] if number_format is None else []
    if number_format is not None:
        item = struct.Struct(number_format)
        packed = message[field.begin : field.end]
        if len(packed) % item.size:
            raise ValueError(f"a tensor has {len(packed)} bytes of numbers of {item.size} bytes")
        return [number for (number,) in item.iter_unpack(packed)]
    at, found = field.begin, []
    while at < field.end:
        value, at = varint_at(message, at, field.end)
        found.append(signed(value))
    return found


def _filled(flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return ``flat`` in this shape; its last element is repeated for those that are missing."""
    size = math.prod(shape)
    if flat.size > size or (size and not flat.size and flat.dtype == object):
        raise ValueError(f"a tensor of shape {shape} has {flat.size} elements")
    if flat.size < size:
        if size * flat.itemsize > _MOST_BYTES:
            raise ValueError(f"a tensor of shape {shape} has only {flat.size} elements")
        last = flat[-1] if flat.size else 0
        flat = np.concatenate([flat, np.full(size - flat.size, last, flat.dtype)])
    return flat.reshape(shape)
