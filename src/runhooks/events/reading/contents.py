"""The contents of one event file, and of the files of one run without what was replaced later."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from runhooks.errors import DataLossError
from runhooks.events.format.event import SessionStatus
from runhooks.events.format.record import FRAME_BYTES
from runhooks.events.reading.block_contents import BlockContents
from runhooks.events.reading.blocks import Block, RecordReader, read_places
from runhooks.events.reading.columns import ScalarStore, concatenated
from runhooks.events.reading.messages import HPARAMS, TagMetadata
from runhooks.events.reading.results import Damage, Point, Points, Scalars
from runhooks.events.reading.rows import RowDecoders
from runhooks.events.reading.values import decode_message
from runhooks.stores.path import AnyPath


class StoredPoint(NamedTuple):
    """A point that is not a scalar: its value is at ``[begin:end]`` of the file.

    ``segment``: how many sessions started in the file before it was written.
    """

    segment: int
    step: int
    wall_time: float
    begin: int
    end: int


class FileContents:
    """The contents of the event file ``path``.

    Each session that starts opens a segment.

    Attributes:
        path: The file.
        records: The reader of its records.
        starts: The step at which each segment but the first starts.
        segments: The scalars of each segment.
        points: The other points, by kind and number of the tag.
        logs: The session logs.
        errors: Records whose CRCs are right but whose content is malformed.
    """

    def __init__(self, path: AnyPath, rows: RowDecoders, metadata: TagMetadata) -> None:
        self.path = path
        self.records = RecordReader(path)
        self.starts: list[int] = []
        self.segments = [ScalarStore()]
        self.points: dict[tuple[str, int], list[StoredPoint]] = {}
        self.logs: list[Point] = []
        self.errors: list[Damage] = []
        self._graph: tuple[int, int] | None = None
        self._rows = rows
        self._metadata = metadata

    def update(self, skip_unreadable: bool = False) -> int:
        """Read new records and return the number of new points.

        Raises OSError, unless it is to be listed as a damage.
        """
        new = 0
        try:
            for block in self.records.blocks():
                new += self._take(block, BlockContents(block, self._rows, self._metadata))
        except OSError as error:
            if not skip_unreadable:
                raise
            self.records.skip_rest(error)
        return new

    def is_replaced(self, path: AnyPath) -> bool:
        """Return whether another file has taken the place of the one that was read.

        ``path``: the path as it was found last.
        """
        self.path = path
        return self.records.is_replaced(path)

    @property
    def graph(self) -> bytes | None:
        """The last graph. Raises OSError if the file is gone, DataLossError if it was replaced."""
        return self._read(*self._graph) if self._graph else None

    def encoded(self, points: Sequence[StoredPoint]) -> list[bytes]:
        """Return the values of ``points`` as they are in the file, each a value of a summary.

        Raises OSError if the file is gone, DataLossError if it was replaced.
        """
        return self._read_all([(point.begin, point.end) for point in points])

    def value(self, point: StoredPoint, kind: str, tag: str) -> Any:
        """Return the value of ``point``, which is of this kind and tag.

        Raises:
            OSError: If the file is gone.
            DataLossError: If the file was replaced, or the value is malformed.
        """
        try:
            return self._decoded(point, kind, tag)
        except ValueError as error:
            raise DataLossError(
                f"{self.path} holds the {kind} of tag {tag!r} at byte {point.begin} that cannot be "
                f"decoded: {error}",
                path=str(self.path),
            ) from error

    def undecodable(self) -> list[Damage]:
        """Return the values, scalars excepted, that are malformed. Raises OSError."""
        found = []
        for (kind, tag_id), points in self.points.items():
            for point in points:
                try:
                    self._decoded(point, kind, tag := self._rows.wanted.names[tag_id])
                except ValueError as error:
                    length = point.end - point.begin
                    reason = f"a {kind} of tag {tag!r} that cannot be decoded: {error}"
                    found.append(Damage(self.path, point.begin, length, reason))
        return found

    def _decoded(self, point: StoredPoint, kind: str, tag: str) -> Any:
        message = self._read(point.begin, point.end)
        return decode_message(message, tag, kind, self._metadata)

    def _take(self, block: Block, found: BlockContents) -> int:
        for record in found.damaged:
            self.records.bad_payload(*_place(block, record))
        for record, reason in found.malformed:
            self.errors.append(Damage(self.path, *_place(block, record), reason))
        starts = [it for it in found.logs if it[1].value.status == SessionStatus.START]
        first = len(self.starts)
        scalars, begin = found.scalars, 0
        for record, log in starts:
            end = int(scalars.first[record])
            self.segments[-1].add(scalars, begin, end)
            begin = end
            self.starts.append(log.step)
            self.segments.append(ScalarStore())
        self.segments[-1].add(scalars, begin, len(scalars.ids))
        records = [record for record, _ in starts]
        for point in found.points:
            segment = first + bisect.bisect_left(records, point.record)
            place = block.offset + point.begin, block.offset + point.end
            self.points.setdefault((point.kind, point.tag_id), []).append(
                StoredPoint(segment, point.step, point.wall_time, *place)
            )
        self.logs += [log for _, log in found.logs]
        if found.graph:
            self._graph = block.offset + found.graph[0], block.offset + found.graph[1]
        return len(scalars.ids) + len(found.points)

    def _read(self, begin: int, end: int) -> bytes:
        (message,) = self._read_all([(begin, end)])
        return message

    def _read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        if not places:
            return []
        messages = read_places(self.path, places)
        if self.is_replaced(self.path):
            raise DataLossError(
                f"{self.path} was replaced since it was read: call update() to read it",
                path=str(self.path),
            )
        return messages


def _place(block: Block, record: int) -> tuple[int, int]:
    """Return where ``record`` begins in the file, and its size in bytes."""
    starts, lengths = block.found
    return block.offset + int(starts[record]), int(lengths[record]) + FRAME_BYTES


def limits(files: Sequence[FileContents]) -> list[list[int | None]]:
    """Return, for each segment of each file, the first step that later sessions replaced.

    None: no session started later.
    """
    limit: int | None = None
    of_files = []
    for file in reversed(files):
        of_file = [limit]
        for start in reversed(file.starts):
            limit = start if limit is None else min(start, limit)
            of_file.append(limit)
        of_files.append(of_file[::-1])
    return of_files[::-1]


class RunContents:
    """The contents of the event files of one run, in order.

    Args:
        rows: Those of all runs that are read together.
        purge: Whether to leave out points from the step on at which a later session started.
    """

    def __init__(self, rows: RowDecoders, purge: bool) -> None:
        self.metadata = TagMetadata()
        self.files: list[FileContents] = []
        self._limits: list[list[int | None]] = []
        self._rows = rows
        self._purge = purge

    def update(self, paths: Sequence[AnyPath], skip_unreadable: bool = False) -> int:
        """Read what is new in the files ``paths``, sorted; return the number of new points.

        All other files are dropped. Raises OSError, unless files that cannot be read are to be
        skipped and listed as damages.
        """
        known = {file.path: file for file in self.files}
        self.files = [self._file(known.get(path), path) for path in paths]
        try:
            return sum(file.update(skip_unreadable) for file in self.files)
        finally:
            self._limits = (
                limits(self.files)
                if self._purge
                else [[None] * len(file.segments) for file in self.files]
            )

    def _file(self, known: FileContents | None, path: AnyPath) -> FileContents:
        if known is not None and not known.is_replaced(path):
            return known
        return FileContents(path, self._rows, self.metadata)

    def scalars(self, tag_id: int) -> Scalars:
        """Return the scalars of the tag."""
        return concatenated(self.scalars_of_files(tag_id))

    def scalars_of_files(self, tag_id: int) -> list[Scalars]:
        """Return the scalars of the tag in each file, in order."""
        found = []
        for file, of_file in zip(self.files, self._limits, strict=True):
            pieces = [
                columns[tag_id] if limit is None else _before(columns[tag_id], limit)
                for segment, limit in zip(file.segments, of_file, strict=True)
                if tag_id in (columns := segment.columns())
            ]
            found.append(concatenated(pieces))
        return found

    def points_of_files(self, kind: str, tag_id: int) -> list[list[StoredPoint]]:
        """Return the points of this kind and tag in each file, in order."""
        is_kept = kind == HPARAMS  # no step makes them, so that none makes them again
        return [
            [
                point
                for point in file.points.get((kind, tag_id), ())
                if is_kept or (limit := of_file[point.segment]) is None or point.step < limit
            ]
            for file, of_file in zip(self.files, self._limits, strict=True)
        ]

    def points(self, kind: str, tag_id: int) -> Points:
        """Return the points of this kind and tag, which are decoded when they are used."""
        tag = self._name(tag_id)
        found = [
            (point, partial(file.value, point, kind, tag))
            for file, points in zip(self.files, self.points_of_files(kind, tag_id), strict=True)
            for point in points
        ]
        return Points(
            np.array([point.step for point, _ in found], np.int64),
            np.array([point.wall_time for point, _ in found], np.float64),
            lambda at: found[at][1](),
        )

    def encoded_points(self, kind: str, tag_id: int) -> list[tuple[StoredPoint, bytes]]:
        """Return the points of this kind and tag, each with its value of a summary as bytes.

        Raises OSError if a file is gone, DataLossError if it was replaced.
        """
        return [
            pair
            for file, points in zip(self.files, self.points_of_files(kind, tag_id), strict=True)
            for pair in zip(points, file.encoded(points), strict=True)
        ]

    def scalar_tags(self) -> dict[str, int]:
        """Return the tags with scalars, and their numbers."""
        sure: set[int] = set()
        unsure: set[int] = set()
        for file, of_file in zip(self.files, self._limits, strict=True):
            for segment, limit in zip(file.segments, of_file, strict=True):
                (sure if limit is None else unsure).update(segment.columns())
        sure.update(i for i in unsure - sure if len(self.scalars(i).steps))
        return {self._name(tag_id): tag_id for tag_id in sorted(sure)}

    def point_tags(self) -> dict[tuple[str, str], int]:
        """Return the kinds and tags of other points, and the numbers."""
        keys = dict.fromkeys(key for file in self.files for key in file.points)
        return {
            (kind, self._name(tag_id)): tag_id
            for kind, tag_id in keys
            if any(self.points_of_files(kind, tag_id))
        }

    def _name(self, tag_id: int) -> str:
        return self._rows.wanted.names[tag_id]


def _before(scalars: Scalars, limit: int) -> Scalars:
    keep = scalars.steps < limit
    if keep.all():
        return scalars
    return Scalars(scalars.steps[keep], scalars.values[keep], scalars.wall_times[keep])
