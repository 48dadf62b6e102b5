"""The contents of a block, of an event file, and of a run without what was replaced later."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.errors import DataLossError
from runhooks.events.format.event import SessionLog, SessionStatus
from runhooks.events.format.proto import as_float, signed
from runhooks.events.format.record import HEADER_BYTES, check_of
from runhooks.events.reading.blocks import Block, RecordReader, read_places
from runhooks.events.reading.messages import (
    GRAPH_DEF,
    HPARAMS,
    SCALAR,
    SESSION_LOG_FIELD,
    TagMetadata,
    parse_event,
)
from runhooks.events.reading.results import Damage, Point, Points, Scalars
from runhooks.events.reading.rows import (
    FEW_ROWS,
    RowDecoders,
    ScalarRows,
    ScalarStore,
    SingleScalar,
    concatenated,
    in_order,
)
from runhooks.events.reading.values import decode_message, decode_value
from runhooks.stores.path import AnyPath

_LONG = 1 << 14  # bytes: longer payloads are decoded one by one


class OtherPoint(NamedTuple):
    """A point that is not a scalar; its value is the message ``data[begin:end]`` of the block."""

    record: int
    kind: str
    tag: str
    step: int
    wall_time: float
    begin: int
    end: int


class BlockContents:
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
            payload = bytes(memoryview(block.data)[begin:end])
            if check_of(payload) != block.data[end : end + 4]:
                self.damaged.append(record)
                continue
            try:
                self._decode(record, begin, payload)
            except ValueError as error:
                self.malformed.append((record, str(error)))
        self.scalars = in_order(len(starts), found, self._singles)

    def _decode(self, record: int, at: int, payload: bytes) -> None:
        event = parse_event(payload)
        step = signed(event.step.value) if event.step else 0
        at_time = event.wall_time
        wall_time = as_float(payload[at_time.begin : at_time.end]) if at_time else 0.0
        for value in event.values:
            tag, metadata, kind = self._metadata.identify(payload, value)
            if kind is None or (tag_id := self._wanted.id(kind, tag)) < 0:
                continue
            if kind == SCALAR:
                number = decode_value(payload, value, kind, metadata)
                self._singles.append((record, tag_id, step, number, wall_time))
            else:
                place = at + value.begin, at + value.end
                self.points.append(OtherPoint(record, kind, tag, step, wall_time, *place))
        if event.number == SESSION_LOG_FIELD:
            message = b"".join(payload[field.begin : field.end] for field in event.contents)
            log = SessionLog.FromString(message)
            self.logs.append((record, Point(step, wall_time, log)))
        elif event.number == GRAPH_DEF:
            self.graph = at + event.contents[-1].begin, at + event.contents[-1].end


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each length and its indices; a length above 65534 may come repeatedly."""
    if not len(lengths):
        return
    order = np.argsort(lengths.clip(0, 65535).astype(np.uint16), kind="stable")  # by radix
    in_order = lengths[order]
    bounds = [0, *(np.flatnonzero(in_order[1:] != in_order[:-1]) + 1).tolist(), len(order)]
    for begin, end in itertools.pairwise(bounds):
        yield int(in_order[begin]), order[begin:end]


class StoredPoint(NamedTuple):
    """A point that is not a scalar, whose value is at ``[begin:end]`` of the file.

    ``segment``: how many sessions started in the file before it.
    """

    segment: int
    step: int
    wall_time: float
    begin: int
    end: int


class FileContents:
    """The contents of one event file; each session that starts opens a segment.

    ``starts``: the step at which each but the first starts. ``errors``: malformed records whose
    CRCs are right.
    """

    def __init__(self, path: AnyPath, rows: RowDecoders, metadata: TagMetadata) -> None:
        self.records = RecordReader(path)
        self.starts: list[int] = []
        self.segments = [ScalarStore(rows.wanted.names)]
        self.points: dict[tuple[str, str], list[StoredPoint]] = {}
        self.logs: list[Point] = []
        self.errors: list[Damage] = []
        self._graph: tuple[int, int] | None = None
        self._rows = rows
        self._metadata = metadata

    @property
    def path(self) -> AnyPath:
        return self.records.path

    def update(self, skip_unreadable: bool) -> int:
        """Read what is new; return the number of new points."""
        new = 0
        try:
            for block in self.records.blocks():
                new += self._take(block, BlockContents(block, self._rows, self._metadata))
        except OSError as error:
            if not skip_unreadable:
                raise
            self.records.skip_rest(error)
        return new

    @property
    def graph(self) -> bytes | None:
        return self.read([self._graph])[0] if self._graph else None

    def read(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return what is at ``places``, each where it begins and ends.

        Raises OSError if the file is gone, DataLossError if it was replaced.
        """
        if not places:
            return []
        messages = read_places(self.path, places)
        if self.records.is_replaced(self.path):
            raise DataLossError(
                f"{self.path} was replaced since it was read: call update() to read it",
                path=str(self.path),
            )
        return messages

    def value(self, point: StoredPoint, kind: str, tag: str) -> Any:
        try:
            return self._decoded(point, kind)
        except ValueError as error:
            raise DataLossError(
                f"{self.path} holds the {kind} of tag {tag!r} at byte {point.begin} that cannot be "
                f"decoded: {error}",
                path=str(self.path),
            ) from error

    def undecodable(self) -> list[Damage]:
        """Return the malformed values, scalars excepted."""
        found = []
        for (kind, tag), points in self.points.items():
            for point in points:
                try:
                    self._decoded(point, kind)
                except ValueError as error:
                    length = point.end - point.begin
                    reason = f"a {kind} of tag {tag!r} that cannot be decoded: {error}"
                    found.append(Damage(self.path, point.begin, length, reason))
        return found

    def _decoded(self, point: StoredPoint, kind: str) -> Any:
        (message,) = self.read([(point.begin, point.end)])
        return decode_message(message, kind, self._metadata)

    def _take(self, block: Block, found: BlockContents) -> int:
        for record in found.damaged:
            self.records.bad_payload(*block.place(record))
        for record, reason in found.malformed:
            self.errors.append(Damage(self.path, *block.place(record), reason))
        first = len(self.starts)
        scalars, begin = found.scalars, 0
        records = []
        for record, log in found.logs:
            self.logs.append(log)
            if log.value.status != SessionStatus.START:
                continue
            end = int(scalars.first[record])
            self.segments[-1].add(scalars, begin, end)
            begin = end
            self.starts.append(log.step)
            self.segments.append(ScalarStore(self._rows.wanted.names))
            records.append(record)
        self.segments[-1].add(scalars, begin, len(scalars.ids))
        for point in found.points:
            segment = first + bisect.bisect_left(records, point.record)
            place = block.offset + point.begin, block.offset + point.end
            of_tag = self.points.setdefault((point.kind, point.tag), [])
            of_tag.append(StoredPoint(segment, point.step, point.wall_time, *place))
        if found.graph:
            self._graph = block.offset + found.graph[0], block.offset + found.graph[1]
        return len(scalars.ids) + len(found.points)


class RunContents:
    """The contents of the event files of one run; ``purge``: without what was repeated later."""

    def __init__(self, rows: RowDecoders, purge: bool) -> None:
        self.metadata = TagMetadata()
        self.files: list[FileContents] = []
        self._limits: list[list[int | None]] = []
        self._rows = rows
        self._purge = purge

    def update(self, paths: Sequence[AnyPath], skip_unreadable: bool = False) -> int:
        """Go on with ``paths``, sorted, and no other files; return the number of new points."""
        known = {file.path: file for file in self.files}
        self.files = [
            file
            if (file := known.get(path)) and not file.records.is_replaced(path)
            else FileContents(path, self._rows, self.metadata)
            for path in paths
        ]
        try:
            return sum(file.update(skip_unreadable) for file in self.files)
        finally:
            self._set_limits()

    def _set_limits(self) -> None:
        """Find the first step of each segment that was replaced."""
        limit: int | None = None
        limits = []
        for file in reversed(self.files):
            of_file = [limit]
            for start in reversed(file.starts):
                if self._purge:
                    limit = start if limit is None else min(start, limit)
                of_file.append(limit)
            limits.append(of_file[::-1])
        # At once: another thread may be reading.
        self._limits = limits[::-1]

    def scalars(self, tag: str) -> Scalars:
        return concatenated(self.scalars_of_files(tag))

    def scalars_of_files(self, tag: str) -> list[Scalars]:
        found = []
        for file, of_file in zip(self.files, self._limits, strict=True):
            pieces = [
                columns[tag] if limit is None else _before(columns[tag], limit)
                for segment, limit in zip(file.segments, of_file, strict=True)
                if tag in (columns := segment.columns())
            ]
            found.append(concatenated(pieces))
        return found

    def points_of_files(
        self, kind: str, tag: str
    ) -> Iterator[tuple[FileContents, list[StoredPoint]]]:
        is_kept = kind == HPARAMS  # no step makes them, so that none makes them again
        for file, of_file in zip(self.files, self._limits, strict=True):
            yield (
                file,
                [
                    point
                    for point in file.points.get((kind, tag), ())
                    if is_kept or (limit := of_file[point.segment]) is None or point.step < limit
                ],
            )

    def points(self, kind: str, tag: str) -> Points:
        found = [
            (point, partial(file.value, point, kind, tag))
            for file, points in self.points_of_files(kind, tag)
            for point in points
        ]
        return Points(
            np.array([point.step for point, _ in found], np.int64),
            np.array([point.wall_time for point, _ in found], np.float64),
            lambda at: found[at][1](),
        )

    def encoded_points(self, kind: str, tag: str) -> list[tuple[StoredPoint, bytes]]:
        return [
            pair
            for file, points in self.points_of_files(kind, tag)
            for pair in zip(points, file.read([(it.begin, it.end) for it in points]), strict=True)
        ]

    def scalar_tags(self) -> list[str]:
        is_sure: dict[str, bool] = {}
        for file, of_file in zip(self.files, self._limits, strict=True):
            for segment, limit in zip(file.segments, of_file, strict=True):
                for tag in tuple(segment.columns()):  # another thread may add some
                    is_sure[tag] = limit is None or is_sure.get(tag, False)
        return [tag for tag, sure in is_sure.items() if sure or len(self.scalars(tag).steps)]

    def point_tags(self) -> list[tuple[str, str]]:
        keys = dict.fromkeys(key for file in self.files for key in file.points)
        return [key for key in keys if any(points for _, points in self.points_of_files(*key))]


def _before(scalars: Scalars, limit: int) -> Scalars:
    keep = scalars.steps < limit
    return scalars if keep.all() else Scalars._make(column[keep] for column in scalars)
