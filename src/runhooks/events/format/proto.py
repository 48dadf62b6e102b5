"""Reading and writing the fields of Protocol Buffers messages.

A message is the concatenation of its fields. ``as_*`` raise ValueError if the field was sent as
another type. Format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


class Field(NamedTuple):
    """A field: an int if it was sent as a varint, else the bytes of its content."""

    number: int
    value: int | bytes


class LocatedField(NamedTuple):
    """A field whose content is at ``[begin:end]``; ``value``: of a varint, else 0."""

    number: int
    wire_type: int
    begin: int
    end: int
    value: int


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of ``message``, in order. Raises ValueError if it is malformed."""
    for number, wire_type, begin, end, value in locate_fields(message, 0, len(message)):
        yield Field(number, value if wire_type == VARINT else message[begin:end])


def locate_fields(message: bytes, begin: int, end: int) -> Iterator[LocatedField]:
    """Yield the fields of the message at ``message[begin:end]``, as ``fields``, without copies."""
    at = begin
    while at < end:
        key, at = varint_at(message, at, end)
        number, wire_type = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"a field must have a number from 1 to 2**29 - 1, got {number}")
        first, value = at, 0
        if wire_type == VARINT:
            value, at = varint_at(message, at, end)
        elif wire_type == LENGTH_DELIMITED:
            length, first = varint_at(message, at, end)
            at = first + length
        elif wire_type == FIXED64:
            at += 8
        elif wire_type == FIXED32:
            at += 4
        else:
            raise ValueError(f"field {number} has the unknown wire type {wire_type}")
        if at > end:
            raise ValueError(f"field {number} is cut off: it ends at byte {at} of {end}")
        yield LocatedField(number, wire_type, first, at, value)


def varint_at(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at byte ``at``, as a uint64, and the byte after it."""
    if at < end and message[at] < 0x80:
        return message[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise ValueError(f"a varint is cut off at byte {at}")
        digit = message[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError(f"a varint is longer than ten bytes before byte {at}")


def signed(value: int) -> int:
    """Return the int64 with the bits of the uint64 ``value``."""
    return value - (1 << 64) if value >> 63 else value


def as_int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError(f"a varint was expected, got {len(value)} bytes")
    return signed(value)


def as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"bytes were expected, got the varint {value}")
    return value


def as_float(value: int | bytes) -> float:
    content = as_bytes(value)
    if len(content) not in (4, 8):
        raise ValueError(f"4 or 8 bytes were expected, got {len(content)}")
    number: float = (_FLOAT if len(content) == 4 else _DOUBLE).unpack(content)[0]
    return number


def varint(value: int) -> bytes:
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
    return _key(number, VARINT) + varint(value)


def int_field(number: int, value: int) -> bytes:
    """Return a ``varint_field``, or nothing for 0, the default of proto3."""
    return varint_field(number, value) if value else b""


def double_field(number: int, value: float) -> bytes:
    return _key(number, FIXED64) + _DOUBLE.pack(value)


def float_field(number: int, value: float) -> bytes:
    """Return a field; infinity beyond float32."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        packed = _FLOAT.pack(math.copysign(math.inf, value))
    return _key(number, FIXED32) + packed


def bytes_field(number: int, value: bytes) -> bytes:
    return _key(number, LENGTH_DELIMITED) + varint(len(value)) + value


def text_field(number: int, value: str | bytes) -> bytes:
    """Return a ``bytes_field``, or nothing if ``value`` is empty, the default of proto3."""
    content = value.encode() if isinstance(value, str) else value
    return bytes_field(number, content) if content else b""


def packed_doubles_field(number: int, values: ArrayLike) -> bytes:
    return bytes_field(number, np.asarray(values, "<f8").tobytes())


def packed_ints_field(number: int, values: Iterable[int]) -> bytes:
    return text_field(number, b"".join(map(varint, values)))
