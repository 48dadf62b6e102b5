"""Fields as proto3 writes them: one that holds the default of its type is left out."""

from __future__ import annotations

from collections.abc import Iterable

from runhooks.events import wire


def text_field(number: int, value: str | bytes) -> bytes:
    """Return a field of type string or bytes, or one that is a message; nothing if it is empty."""
    content = value.encode() if isinstance(value, str) else value
    return wire.bytes_field(number, content) if content else b""


def int_field(number: int, value: int) -> bytes:
    """Return a field of type int32, int64, bool or enum; nothing if it is 0."""
    return wire.varint_field(number, value) if value else b""


def packed_ints_field(number: int, values: Iterable[int]) -> bytes:
    """Return a packed repeated field of an integer type; nothing if there are no values."""
    return text_field(number, b"".join(map(wire.varint, values)))
