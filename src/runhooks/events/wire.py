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

from runhooks.events.spans import FIXED32, FIXED64, LENGTH_DELIMITED, VARINT, signed, spans

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
    return _key(number, VARINT) + varint(value)


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
    for span in spans(message, 0, len(message)):
        is_varint = span.wire_type == VARINT
        yield Field(span.number, span.value if is_varint else message[span.begin : span.end])


def as_int(value: int | bytes) -> int:
    """Return the value of an int32, int64 or enum field.

    Raises ValueError if it was not sent as a varint.
    """
    if not isinstance(value, int):
        raise ValueError(f"a varint was expected, got {len(value)} bytes")
    return signed(value)


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
