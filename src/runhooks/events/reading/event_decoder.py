"""``EventDecoder``: the contents of the records of a block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.event import SessionLog
from runhooks.events.format.record import HEADER_BYTES, check_of
from runhooks.events.reading.blocks import BAD_PAYLOAD, Block
from runhooks.events.reading.columns import ScalarColumns, SingleScalar, in_order
from runhooks.events.reading.messages import (
    GRAPH_DEF,
    META_GRAPH_DEF,
    SCALAR,
    SESSION_LOG_FIELD,
    TAGGED_RUN_METADATA,
    ParsedValue,
    TagRegistry,
    kind_of,
    parse_event,
    step_of,
    text_at,
    wall_time_of,
)
from runhooks.events.reading.rows import FEW_ROWS, Reading, RowDecoders
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


class Log(NamedTuple):
    """A session log and the record it is in."""

    record: int
    step: int
    wall_time: float
    log: SessionLog


class Fault(NamedTuple):
    """A record that cannot be used: its CRC is wrong, if ``is_damage``, or it is malformed."""

    record: int
    is_damage: bool
    reason: str


class _OneByOne:
    """Decodes records of ``block`` one by one, in order, into its lists.

    ``graph``: the place of the last graph in the block, or None. ``messages``: the fields of other
    messages than summaries and logs, and their places.
    """

    def __init__(self, registry: TagRegistry, block: Block) -> None:
        self.scalars: list[SingleScalar] = []
        self.points: list[OtherPoint] = []
        self.logs: list[Log] = []
        self.graph: tuple[int, int] | None = None
        self.messages: list[tuple[int, int, int]] = []
        self.faults: list[Fault] = []
        self._registry = registry
        self._block = block

    def decode(self, records: NDArray[np.int64]) -> None:
        """Add the wanted contents of ``records``."""
        starts, lengths = self._block.found
        first = starts[records] + HEADER_BYTES
        places = zip(records.tolist(), first.tolist(), lengths[records].tolist(), strict=True)
        for record, at, length in places:
            self._decode(record, at, at + length)

    def _decode(self, record: int, at: int, end: int) -> None:
        data = self._block.data
        payload = bytes(memoryview(data)[at:end])
        if check_of(payload) != data[end : end + 4]:
            self.faults.append(Fault(record, True, BAD_PAYLOAD))
            return
        try:
            self._decode_event(record, at, payload)
        except ValueError as error:
            self.faults.append(Fault(record, False, str(error)))

    def _decode_event(self, record: int, at: int, payload: bytes) -> None:
        event = parse_event(payload)
        step, wall_time = step_of(event), wall_time_of(payload, event)
        for value in event.values:
            self._decode_value(record, at, step, wall_time, payload, value)
        contents = event.contents
        if event.number == SESSION_LOG_FIELD:
            message = b"".join(payload[field.begin : field.end] for field in contents)
            self.logs.append(Log(record, step, wall_time, SessionLog.FromString(message)))
        elif event.number == GRAPH_DEF:
            self.graph = at + contents[-1].begin, at + contents[-1].end
        elif event.number in (META_GRAPH_DEF, TAGGED_RUN_METADATA):
            self.messages.append((event.number, at + contents[-1].begin, at + contents[-1].end))

    def _decode_value(
        self, record: int, at: int, step: int, wall_time: float, payload: bytes, value: ParsedValue
    ) -> None:
        registry, numbers = self._registry, self._registry.numbers
        tag = text_at(payload, value.tag)
        metadata = registry.metadata_of(payload, value, tag)
        kind = kind_of(value, metadata)
        if kind is None or not numbers.wanted.kind(kind) or (tag_id := numbers.id(tag)) < 0:
            return
        if kind == SCALAR:
            number = decode_value(payload, value, kind, metadata)
            self.scalars.append((record, tag_id, step, number, wall_time))
        else:
            place = at + value.begin, at + value.end
            self.points.append(OtherPoint(record, tag_id, kind, step, wall_time, *place))


class Decoded(NamedTuple):
    """The contents of a block, in the order in which they were written.

    ``graph``: the place of the last graph in the block, or None. ``messages``: the fields of
    metagraphs and metadata of runs, and their places.
    """

    scalars: ScalarColumns
    points: list[OtherPoint]
    logs: list[Log]
    graph: tuple[int, int] | None
    messages: list[tuple[int, int, int]]
    faults: list[Fault]


class EventDecoder:
    """Decodes the blocks of a file one after the other.

    ``registry``: that of the run; ``rows``: those of all runs that are read together.
    """

    def __init__(self, registry: TagRegistry, rows: RowDecoders) -> None:
        self._registry = registry
        self._rows = rows

    def decode(self, block: Block) -> Decoded:
        """Return the wanted contents of ``block``. Verifies every CRC."""
        starts, lengths = block.found
        readings: list[Reading] = []
        left: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for length, index in _by_length(lengths):
            if length > _LONG or len(index) < FEW_ROWS:
                left.append(index)
                continue
            rows = block.rows(index, length)
            read, unlike = self._rows[length].decode(index, rows, self._registry)
            readings += read
            left += [unlike, *(reading.left for reading in read)]
        others = _OneByOne(self._registry, block)
        others.decode(np.sort(np.concatenate(left)))
        bad = (record for reading in readings for record in reading.bad.tolist())
        faults = sorted([*others.faults, *(Fault(record, True, BAD_PAYLOAD) for record in bad)])
        pieces = [reading.piece for reading in readings]
        scalars = in_order(len(starts), pieces, others.scalars)
        places = others.graph, others.messages
        return Decoded(scalars, others.points, others.logs, *places, faults)


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each length and the indices of its records; one above 65534 may come repeatedly."""
    if not len(lengths):
        return
    order = np.argsort(lengths.clip(0, 65535).astype(np.uint16), kind="stable")  # by radix
    in_order = lengths[order]
    bounds = [0, *(np.flatnonzero(in_order[1:] != in_order[:-1]) + 1).tolist(), len(order)]
    for begin, end in itertools.pairwise(bounds):
        yield int(in_order[begin]), order[begin:end]
