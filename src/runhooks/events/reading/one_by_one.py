"""``OneByOne``: records that are not read by the thousand."""

from __future__ import annotations

from typing import NamedTuple

from runhooks.events.event import SessionLog
from runhooks.events.reading.kinds import SCALAR, kind_of
from runhooks.events.reading.parsed_event import (
    GRAPH_DEF,
    SESSION_LOG,
    ParsedValue,
    parse_event,
    step_of,
    text_at,
    wall_time_of,
)
from runhooks.events.reading.record_reader import BAD_PAYLOAD, Block
from runhooks.events.reading.scalar_columns import SingleScalar
from runhooks.events.reading.tag_registry import TagRegistry
from runhooks.events.reading.values import decode_value
from runhooks.events.record import HEADER_BYTES, check_of


class OtherPoint(NamedTuple):
    """A point that is no scalar. Its value is a message: ``data[begin:end]`` of the block."""

    record: int
    tag_id: int
    kind: str
    step: int
    wall_time: float
    begin: int
    end: int


class Log(NamedTuple):
    """A session log."""

    record: int
    step: int
    wall_time: float
    log: SessionLog


class Fault(NamedTuple):
    """A record that says nothing: its check fails, if ``is_damage``, or it makes no sense."""

    record: int
    is_damage: bool
    reason: str


class OneByOne:
    """Decodes single records of ``block``, in their order, into the lists that are its fields.

    ``graph``: where in the block the last graph is, or None.
    """

    def __init__(self, registry: TagRegistry, block: Block) -> None:
        self.scalars: list[SingleScalar] = []
        self.points: list[OtherPoint] = []
        self.logs: list[Log] = []
        self.graph: tuple[int, int] | None = None
        self.faults: list[Fault] = []
        self._registry = registry
        self._block = block

    def decode(self, record: int) -> None:
        """Take in all that is wanted of ``record``."""
        starts, lengths = self._block.found
        at, length = int(starts[record]) + HEADER_BYTES, int(lengths[record])
        data = self._block.data
        payload = bytes(memoryview(data)[at : at + length])
        if check_of(payload) != data[at + length : at + length + 4]:
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
        if event.what == SESSION_LOG:
            message = b"".join(payload[span.begin : span.end] for span in contents)
            self.logs.append(Log(record, step, wall_time, SessionLog.FromString(message)))
        elif event.what == GRAPH_DEF:
            self.graph = at + contents[-1].begin, at + contents[-1].end

    def _decode_value(
        self, record: int, at: int, step: int, wall_time: float, payload: bytes, value: ParsedValue
    ) -> None:
        registry = self._registry
        tag = text_at(payload, value.tag)
        metadata = registry.metadata_of(payload, value, tag)
        kind = kind_of(value, metadata)
        if kind is None or not registry.wanted.kind(kind) or (tag_id := registry.id(tag)) < 0:
            return
        if kind == SCALAR:
            number = decode_value(payload, value, kind, metadata)
            self.scalars.append(SingleScalar(record, tag_id, step, wall_time, number))
        else:
            span = at + value.begin, at + value.end
            self.points.append(OtherPoint(record, tag_id, kind, step, wall_time, *span))
