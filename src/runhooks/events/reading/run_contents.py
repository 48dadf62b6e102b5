"""``RunContents``: the files of one run, put together, less what later sessions replaced."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from runhooks.events.reading.file_contents import FileContents, StoredPoint, limits
from runhooks.events.reading.points import Points
from runhooks.events.reading.scalars import Scalars
from runhooks.events.reading.tag_registry import TagRegistry, Wanted


class RunContents:
    """The contents of the event files of one run, in order.

    ``purge``: whether what was written at or after the step at which a later session started is
    left out.
    """

    def __init__(self, wanted: Wanted, strict: bool, purge: bool) -> None:
        self.registry = TagRegistry(wanted)
        self.files: list[FileContents] = []
        self._strict = strict
        self._purge = purge

    def update(self, paths: list[Path]) -> int:
        """Read what is new in the files ``paths``, sorted; return how many points that was.

        Other files are dropped. Raises OSError, DataLossError.
        """
        known = {file.path: file for file in self.files if not file.is_replaced()}
        self.files = [
            known.get(path) or FileContents(path, self.registry, self._strict) for path in paths
        ]
        return sum(file.update() for file in self.files)

    def scalars(self, tag_id: int) -> list[Scalars]:
        """Return what each file has of the tag, in order; empty columns if it has nothing."""
        found = []
        for file, of_file in zip(self.files, self._limits(), strict=True):
            pieces = [
                _before(columns[tag_id], limit)
                for segment, limit in zip(file.segments, of_file, strict=True)
                if tag_id in (columns := segment.columns())
            ]
            found.append(joined(pieces))
        return found

    def points(self, kind: str, tag_id: int) -> list[list[StoredPoint]]:
        """Return what each file has of the tag and that kind, in order."""
        return [
            [
                point
                for point in file.points.get((kind, tag_id), ())
                if (limit := of_file[point.segment]) is None or point.step < limit
            ]
            for file, of_file in zip(self.files, self._limits(), strict=True)
        ]

    def decoded(self, kind: str, tag_id: int) -> Points:
        """Return the points of the tag and that kind, to be decoded when they are touched."""
        tag = self.registry.names[tag_id]
        all_of_them = [
            (point, partial(file.value, point, kind, tag))
            for file, points in zip(self.files, self.points(kind, tag_id), strict=True)
            for point in points
        ]
        return Points(
            np.array([point.step for point, _ in all_of_them], np.int64),
            np.array([point.wall_time for point, _ in all_of_them], np.float64),
            lambda at: all_of_them[at][1](),
        )

    def scalar_tags(self) -> dict[str, int]:
        """Return the tags that have scalars, and their numbers."""
        ids = {tag_id for file in self.files for s in file.segments for tag_id in s.columns()}
        if self._any_limit():
            ids = {tag_id for tag_id in ids if any(len(s.steps) for s in self.scalars(tag_id))}
        return {self.registry.names[tag_id]: tag_id for tag_id in sorted(ids)}

    def point_tags(self) -> dict[tuple[str, str], int]:
        """Return the kinds and tags that have other points, and the numbers of the tags."""
        keys = dict.fromkeys(key for file in self.files for key in file.points)
        return {
            (kind, self.registry.names[tag_id]): tag_id
            for kind, tag_id in keys
            if any(self.points(kind, tag_id))
        }

    def _limits(self) -> list[list[int | None]]:
        if self._purge:
            return limits(self.files)
        return [[None] * len(file.segments) for file in self.files]

    def _any_limit(self) -> bool:
        return any(limit is not None for of_file in self._limits() for limit in of_file)


def joined(pieces: list[Scalars]) -> Scalars:
    """Return ``pieces`` one after the other; a single one that is not empty as it is."""
    pieces = [piece for piece in pieces if len(piece.steps)]
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Scalars(np.empty(0, np.int64), np.empty(0), np.empty(0))
    steps, values, wall_times = zip(*pieces, strict=True)
    return Scalars(np.concatenate(steps), np.concatenate(values), np.concatenate(wall_times))


def _before(scalars: Scalars, limit: int | None) -> Scalars:
    if limit is None:
        return scalars
    keep = scalars.steps < limit
    if keep.all():
        return scalars
    return Scalars(scalars.steps[keep], scalars.values[keep], scalars.wall_times[keep])
