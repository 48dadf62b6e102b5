"""``parse_event``: the places of all fields in the payload of one record.

Field numbers are those of TensorFlow's ``event.proto``, ``summary.proto`` and ``tensor.proto``. Of
fields that exclude each other the last counts, as in Protocol Buffers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from runhooks.events.format.fields import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    locate_fields,
    signed,
)

GRAPH_DEF, SUMMARY, SESSION_LOG, TAGGED_RUN_METADATA, META_GRAPH_DEF = 4, 5, 7, 8, 9
SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR = 2, 3, 4, 5, 6, 8

_WALL_TIME, _STEP = 1, 2
_ONE_OF_EVENT = frozenset(range(3, 10))
_VALUE = 1
_TAG, _METADATA = 1, 9
_ONE_OF_VALUE = frozenset({SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR})
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


class ParsedValue(NamedTuple):
    """One value of a summary, at ``message[begin:end]``, and its fields, None if absent.

    ``content.number`` is one of the constants above.
    """

    begin: int
    end: int
    tag: LocatedField | None
    metadata: LocatedField | None
    content: LocatedField | None


class ParsedEvent(NamedTuple):
    """The fields of one event; ``wall_time`` and ``step`` are None if absent.

    ``number``: the field that it holds besides, such as ``SUMMARY``; ``contents``: its places.
    ``values``: the values of its summary.
    """

    wall_time: LocatedField | None
    step: LocatedField | None
    number: int
    contents: list[LocatedField]
    values: list[ParsedValue]


def parse_event(message: bytes) -> ParsedEvent:
    """Return the fields of ``message``, an Event. Raises ValueError if it is malformed."""
    wall_time = step = None
    number, contents = 0, list[LocatedField]()
    for field in locate_fields(message, 0, len(message)):
        if field.number == _WALL_TIME and field.wire_type == FIXED64:
            wall_time = field
        elif field.number == _STEP and field.wire_type == VARINT:
            step = field
        elif field.number in _ONE_OF_EVENT and field.wire_type == LENGTH_DELIMITED:
            if field.number != number:
                number, contents = field.number, []
            contents.append(field)
    values = []
    if number == SUMMARY:
        values = [
            value for field in contents for value in parse_summary(message, field.begin, field.end)
        ]
    return ParsedEvent(wall_time, step, number, contents, values)


def parse_summary(message: bytes, begin: int, end: int) -> list[ParsedValue]:
    """Return the values of the Summary at ``message[begin:end]``. Raises ValueError."""
    return [
        parse_value(message, field.begin, field.end)
        for field in locate_fields(message, begin, end)
        if field.number == _VALUE and field.wire_type == LENGTH_DELIMITED
    ]


def parse_value(message: bytes, begin: int, end: int) -> ParsedValue:
    """Return the fields of the value at ``message[begin:end]``. Raises ValueError."""
    tag = metadata = content = None
    for field in locate_fields(message, begin, end):
        if field.number == SIMPLE_VALUE:
            content = field if field.wire_type == FIXED32 else content
        elif field.wire_type != LENGTH_DELIMITED:
            continue
        elif field.number == _TAG:
            tag = field
        elif field.number == _METADATA:
            metadata = field
        elif field.number in _ONE_OF_VALUE:
            content = field
    return ParsedValue(begin, end, tag, metadata, content)


def wall_time_of(message: bytes, event: ParsedEvent) -> float:
    """Return the time of ``event``, in seconds since the epoch."""
    if event.wall_time is None:
        return 0.0
    seconds: float = _DOUBLE.unpack_from(message, event.wall_time.begin)[0]
    return seconds


def step_of(event: ParsedEvent) -> int:
    """Return the step of ``event``."""
    return signed(event.step.value) if event.step else 0


def float_at(message: bytes, field: LocatedField) -> float:
    """Return the float at ``field``."""
    value: float = _FLOAT.unpack_from(message, field.begin)[0]
    return value


def text_at(message: bytes, field: LocatedField | None) -> str:
    """Return the string at ``field``, with bytes that are not UTF-8 escaped; "" if None."""
    if field is None:
        return ""
    return message[field.begin : field.end].decode(errors="backslashreplace")
