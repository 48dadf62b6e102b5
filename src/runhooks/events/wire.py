"""The few parts of the Protocol Buffers wire format that event files are made of.

A message is a run of fields; a field is a key, ``number << 3 | wire type``, and its content. The
``*_field`` functions return one whole field, so a message is their concatenation, and two
concatenated messages are the merged message. Format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


def varint(value: int) -> bytes:
    """Return ``value`` in base 128, low digits first; a negative int64 takes ten bytes.

    Raises ValueError if ``value`` fits neither int64 nor uint64.
    """
    if 0 <= value < 0x80:
        return bytes((value,))
    value = operator.index(value)  # of NumPy, for one
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"value must fit in 64 bits, got {value}")
    value &= (1 << 64) - 1
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


@functools.cache
def _key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint_field(number: int, value: int) -> bytes:
    """Return a field of type int32, int64, uint32, uint64, bool or enum."""
    return _key(number, _VARINT) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Return a field of type double."""
    return _key(number, _FIXED64) + _DOUBLE.pack(value)


def float_field(number: int, value: float) -> bytes:
    """Return a field of type float: ``value`` rounded, or infinity if it is beyond float32."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        packed = _FLOAT.pack(math.copysign(math.inf, value))
    return _key(number, _FIXED32) + packed


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of type bytes or string, or one that is a message."""
    return _key(number, _LENGTH_DELIMITED) + varint(len(value)) + value


def packed_doubles_field(number: int, values: ArrayLike) -> bytes:
    """Return a packed repeated field of type double."""
    return bytes_field(number, np.asarray(values, "<f8").tobytes())


class Field(NamedTuple):
    """One field of a message: an int if it is a varint, else the bytes of its content."""

    number: int
    value: int | bytes


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of ``message`` in order.

    Raises ValueError if it is cut off or holds a wire type that no message of ours has.
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, at = _read_varint(message, at)
            yield Field(number, value)
            continue
        length, at = _read_length(message, at, wire_type)
        if at + length > len(message):
            raise ValueError(f"field {number} is cut off: it wants {length} bytes at byte {at}")
        yield Field(number, message[at : at + length])
        at += length


def _read_length(message: bytes, at: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _LENGTH_DELIMITED:
        return _read_varint(message, at)
    if wire_type == _FIXED64:
        return 8, at
    if wire_type == _FIXED32:
        return 4, at
    raise ValueError(f"unknown wire type {wire_type} before byte {at}")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError(f"a varint is cut off at byte {at}")
        digit = message[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, at
    raise ValueError(f"a varint is longer than ten bytes before byte {at}")


def as_int(value: int | bytes) -> int:
    """Return the value of an int32, int64 or enum field.

    Raises ValueError if it was not sent as a varint.
    """
    if not isinstance(value, int):
        raise ValueError(f"a varint was expected, got {len(value)} bytes")
    return value - (1 << 64) if value >> 63 else value


def as_bytes(value: int | bytes) -> bytes:
    """Return the value of a bytes, string or message field.

    Raises ValueError if it was sent as a varint.
    """
    if not isinstance(value, bytes):
        raise ValueError(f"bytes were expected, got the varint {value}")
    return value


def as_float(value: int | bytes) -> float:
    """Return the value of a float or double field.

    Raises ValueError if it has neither four nor eight bytes.
    """
    content = as_bytes(value)
    if len(content) not in (4, 8):
        raise ValueError(f"4 or 8 bytes were expected, got {len(content)}")
    number: float = (_FLOAT if len(content) == 4 else _DOUBLE).unpack(content)[0]
    return number
