"""``BlockContents``: what is in the records of a block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.event import SessionLog
from runhooks.events.format.record import HEADER_BYTES, check_of
from runhooks.events.reading.blocks import Block
from runhooks.events.reading.columns import SingleScalar, in_order
from runhooks.events.reading.messages import (
    GRAPH_DEF,
    SCALAR,
    SESSION_LOG_FIELD,
    ParsedValue,
    TagMetadata,
    kind_of,
    parse_event,
    step_of,
    text_at,
    wall_time_of,
)
from runhooks.events.reading.results import Point
from runhooks.events.reading.rows import FEW_ROWS, RowDecoders, ScalarRows
from runhooks.events.reading.values import decode_value

_LONG = 1 << 14  # bytes: longer payloads are decoded one by one


class OtherPoint(NamedTuple):
    """A point that is not a scalar; its value is the message ``data[begin:end]`` of the block."""

    record: int
    tag_id: int
    kind: str
    step: int
    wall_time: float
    begin: int
    end: int


class BlockContents:
    """The wanted contents of ``block``, in the order in which they were written.

    Every CRC is verified.

    Args:
        block: The records.
        rows: The decoders of all runs that are read together.
        metadata: That of the tags of the run.

    Attributes:
        scalars: The scalars.
        points: The other points.
        logs: The session logs, each with its record.
        graph: The place of the last graph in the block, or None.
        damaged: The records whose CRC is wrong.
        malformed: The other records that cannot be used, each with the reason.
    """

    def __init__(self, block: Block, rows: RowDecoders, metadata: TagMetadata) -> None:
        self.points: list[OtherPoint] = []
        self.logs: list[tuple[int, Point]] = []
        self.graph: tuple[int, int] | None = None
        self.damaged: list[int] = []
        self.malformed: list[tuple[int, str]] = []
        self._singles: list[SingleScalar] = []
        self._wanted = rows.wanted
        self._metadata = metadata
        starts, lengths = block.found
        found: list[ScalarRows] = []
        left: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for length, index in _by_length(lengths):
            if length > _LONG or len(index) < FEW_ROWS:
                left.append(index)
            else:
                records = block.rows(index, length)
                scalars, unread = rows.decode(index, records, length, metadata)
                found += scalars
                left.append(unread)
        records_left = np.sort(np.concatenate(left))
        first = starts[records_left] + HEADER_BYTES
        places = (records_left, first, first + lengths[records_left])
        for record, begin, end in zip(*(column.tolist() for column in places), strict=True):
            self._decode(block, record, begin, end)
        self.scalars = in_order(len(starts), found, self._singles)

    def _decode(self, block: Block, record: int, begin: int, end: int) -> None:
        payload = bytes(memoryview(block.data)[begin:end])
        if check_of(payload) != block.data[end : end + 4]:
            self.damaged.append(record)
            return
        try:
            self._decode_event(record, begin, payload)
        except ValueError as error:
            self.malformed.append((record, str(error)))

    def _decode_event(self, record: int, at: int, payload: bytes) -> None:
        event = parse_event(payload)
        step, wall_time = step_of(event), wall_time_of(payload, event)
        for value in event.values:
            self._decode_value(record, at, step, wall_time, payload, value)
        if event.number == SESSION_LOG_FIELD:
            message = b"".join(payload[field.begin : field.end] for field in event.contents)
            log = SessionLog.FromString(message)
            self.logs.append((record, Point(step, wall_time, log)))
        elif event.number == GRAPH_DEF:
            self.graph = at + event.contents[-1].begin, at + event.contents[-1].end

    def _decode_value(
        self, record: int, at: int, step: int, wall_time: float, payload: bytes, value: ParsedValue
    ) -> None:
        tag = text_at(payload, value.tag)
        metadata = self._metadata.of_value(payload, value, tag)
        kind = kind_of(value, metadata)
        if kind is None or (tag_id := self._wanted.id(kind, tag)) < 0:
            return
        if kind == SCALAR:
            number = decode_value(payload, value, kind, metadata)
            self._singles.append((record, tag_id, step, number, wall_time))
        else:
            place = at + value.begin, at + value.end
            self.points.append(OtherPoint(record, tag_id, kind, step, wall_time, *place))


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each length and the indices of its records; one above 65534 may come repeatedly."""
    if not len(lengths):
        return
    order = np.argsort(lengths.clip(0, 65535).astype(np.uint16), kind="stable")  # by radix
    in_order = lengths[order]
    bounds = [0, *(np.flatnonzero(in_order[1:] != in_order[:-1]) + 1).tolist(), len(order)]
    for begin, end in itertools.pairwise(bounds):
        yield int(in_order[begin]), order[begin:end]
