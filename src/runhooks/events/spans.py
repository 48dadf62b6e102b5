"""Fields of a message by where they are: nothing is copied, and unknown ones are passed over.

Format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


class Span(NamedTuple):
    """One field: its content is at ``[begin:end]``; ``value`` is what a varint says, else 0."""

    number: int
    wire_type: int
    begin: int
    end: int
    value: int


def spans(message: bytes, begin: int, end: int) -> Iterator[Span]:
    """Yield the fields of the message at ``message[begin:end]``, in order.

    Raises ValueError if it is cut off, or holds what is no field.
    """
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
        yield Span(number, wire_type, first, at, value)


def varint_at(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at byte ``at``, as uint64, and where it ends. Raises ValueError."""
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
    """Return the int64 that a varint stands for."""
    return value - (1 << 64) if value >> 63 else value
