"""``parse_event``: where everything is in the payload of one record.

Field numbers are those of TensorFlow's ``event.proto``, ``summary.proto`` and ``tensor.proto``. Of
fields that exclude each other the last counts, as Protocol Buffers says.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from runhooks.events.spans import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    Span,
    signed,
    spans,
)

GRAPH_DEF, SUMMARY, SESSION_LOG = 4, 5, 7
SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR = 2, 3, 4, 5, 6, 8

_WALL_TIME, _STEP = 1, 2
_ONE_OF_EVENT = frozenset(range(3, 10))
_VALUE = 1
_TAG, _METADATA = 1, 9
_ONE_OF_VALUE = frozenset({SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR})
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


class ParsedValue(NamedTuple):
    """One value of a summary: ``message[begin:end]``.

    ``tag``, ``metadata``, ``content``: where they are, or None; ``content.number`` is one of the
    constants here.
    """

    begin: int
    end: int
    tag: Span | None
    metadata: Span | None
    content: Span | None


class ParsedEvent(NamedTuple):
    """One event. ``wall_time``, ``step``: where they are, or None.

    ``what``: the number of what it holds besides, ``contents`` where; ``values``: of its summary.
    """

    wall_time: Span | None
    step: Span | None
    what: int
    contents: list[Span]
    values: list[ParsedValue]


def parse_event(message: bytes) -> ParsedEvent:
    """Return where everything is in ``message``, an Event. Raises ValueError if it is none."""
    wall_time = step = None
    what, contents = 0, list[Span]()
    for span in spans(message, 0, len(message)):
        if span.number == _WALL_TIME and span.wire_type == FIXED64:
            wall_time = span
        elif span.number == _STEP and span.wire_type == VARINT:
            step = span
        elif span.number in _ONE_OF_EVENT and span.wire_type == LENGTH_DELIMITED:
            if span.number != what:
                what, contents = span.number, []
            contents.append(span)
    values = []
    if what == SUMMARY:
        values = [value for span in contents for value in parse_summary(message, *span[2:4])]
    return ParsedEvent(wall_time, step, what, contents, values)


def parse_summary(message: bytes, begin: int, end: int) -> list[ParsedValue]:
    """Return the values of the Summary at ``message[begin:end]``. Raises ValueError."""
    return [
        parse_value(message, span.begin, span.end)
        for span in spans(message, begin, end)
        if span.number == _VALUE and span.wire_type == LENGTH_DELIMITED
    ]


def parse_value(message: bytes, begin: int, end: int) -> ParsedValue:
    """Return where all is in the value, of a Summary, at ``message[begin:end]``; or ValueError."""
    tag = metadata = content = None
    for span in spans(message, begin, end):
        if span.number == SIMPLE_VALUE:
            content = span if span.wire_type == FIXED32 else content
        elif span.wire_type != LENGTH_DELIMITED:
            continue
        elif span.number == _TAG:
            tag = span
        elif span.number == _METADATA:
            metadata = span
        elif span.number in _ONE_OF_VALUE:
            content = span
    return ParsedValue(begin, end, tag, metadata, content)


def wall_time_of(message: bytes, event: ParsedEvent) -> float:
    """Return when ``event`` was, in seconds since the epoch."""
    if event.wall_time is None:
        return 0.0
    seconds: float = _DOUBLE.unpack_from(message, event.wall_time.begin)[0]
    return seconds


def step_of(event: ParsedEvent) -> int:
    """Return the step of ``event``."""
    return signed(event.step.value) if event.step else 0


def float_at(message: bytes, span: Span) -> float:
    """Return the float at ``span``."""
    value: float = _FLOAT.unpack_from(message, span.begin)[0]
    return value


def text_at(message: bytes, span: Span | None) -> str:
    """Return the string at ``span``; what is no UTF-8 in it is escaped."""
    if span is None:
        return ""
    return message[span.begin : span.end].decode(errors="backslashreplace")
