"""Writing the fields of Protocol Buffers messages.

A message is a sequence of fields; a field is a key, ``number << 3 | wire type``, and its content.
The ``*_field`` functions return one whole field, so a message is their concatenation, and two
concatenated messages are the merged message. Format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from runhooks.events.format.fields import FIXED32, FIXED64, LENGTH_DELIMITED, VARINT

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


def varint(value: int) -> bytes:
    """Return ``value`` in base 128, low digits first; a negative int64 takes ten bytes.

    Raises:
        ValueError: If ``value`` fits neither int64 nor uint64.
    """
    if 0 <= value < 0x80:
        return bytes((value,))
    value = operator.index(value)  # it may be NumPy's
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
    return _key(number, VARINT) + varint(value)


def int_field(number: int, value: int) -> bytes:
    """Return a ``varint_field``, or nothing if ``value`` is 0, the default of proto3."""
    return varint_field(number, value) if value else b""


def double_field(number: int, value: float) -> bytes:
    """Return a field of type double."""
    return _key(number, FIXED64) + _DOUBLE.pack(value)


def float_field(number: int, value: float) -> bytes:
    """Return a field of type float: ``value`` rounded, or infinity if it is beyond float32."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        packed = _FLOAT.pack(math.copysign(math.inf, value))
    return _key(number, FIXED32) + packed


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of type bytes or string, or one that is a message."""
    return _key(number, LENGTH_DELIMITED) + varint(len(value)) + value


def text_field(number: int, value: str | bytes) -> bytes:
    """Return a ``bytes_field``, or nothing if ``value`` is empty, the default of proto3."""
    content = value.encode() if isinstance(value, str) else value
    return bytes_field(number, content) if content else b""


def packed_doubles_field(number: int, values: ArrayLike) -> bytes:
    """Return a packed repeated field of type double."""
    return bytes_field(number, np.asarray(values, "<f8").tobytes())


def packed_ints_field(number: int, values: Iterable[int]) -> bytes:
    """Return a packed repeated field of an integer type; nothing if there are no values."""
    return text_field(number, b"".join(map(varint, values)))
