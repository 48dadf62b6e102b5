"""``RunContents``: the files of one run together, without what later points replaced."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.file_contents import FileContents, StoredPoint, limits
from runhooks.events.reading.results import Points, Scalars
from runhooks.events.reading.row_decoder import RowDecoders
from runhooks.events.reading.scalar_columns import joined
from runhooks.events.reading.tag_registry import TagRegistry
from runhooks.stores.path import AnyPath

#: What becomes of the points of a tag that goes back to an earlier step without a restart of the
#: session. ``"keep"``: all stay, in the order in which they were written. ``"drop"``: a point drops
#: those before it whose step is the same or later, as in TensorBoard.
OnFold: TypeAlias = Literal["keep", "drop"]


class RunContents:
    """The contents of the event files of one run, in order.

    Args:
        rows: Those of all runs that are read together.
        strict: Whether to raise at a damage.
        purge: Whether to leave out points from the step on at which a later session started.
        fold: Whether to leave out points that were written again.

    Raises:
        ValueError: If ``fold`` is unknown.
    """

    def __init__(self, rows: RowDecoders, strict: bool, purge: bool, fold: OnFold) -> None:
        if fold not in get_args(OnFold):
            raise ValueError(f"fold must be one of {get_args(OnFold)}, got {fold!r}")
        self.registry = TagRegistry(rows.numbers)
        self.files: list[FileContents] = []
        self._limits: list[list[int | None]] = []
        self._rows = rows
        self._strict = strict
        self._purge = purge
        self._fold = fold

    def update(self, paths: Sequence[AnyPath], skip_unreadable: bool = False) -> int:
        """Read what is new in the files ``paths``, sorted; return the number of new points.

        All other files are dropped. Raises DataLossError if strict; OSError, unless files that
        cannot be read are to be skipped and listed as damages.
        """
        known = {file.path: file for file in self.files}
        self.files = [self._file(known.get(path), path) for path in paths]
        try:
            return sum(file.update(skip_unreadable and not self._strict) for file in self.files)
        finally:
            self._limits = (
                limits(self.files)
                if self._purge
                else [[None] * len(file.segments) for file in self.files]
            )

    def _file(self, known: FileContents | None, path: AnyPath) -> FileContents:
        if known is not None and not known.is_replaced(path):
            return known
        return FileContents(path, self.registry, self._rows, self._strict)

    def scalars(self, tag_id: int) -> Scalars:
        """Return the scalars of the tag."""
        scalars = joined(self.scalars_of_files(tag_id))
        if self._fold == "keep":
            return scalars
        return _chosen(scalars, _not_replaced(scalars.steps))

    def scalars_of_files(self, tag_id: int) -> list[Scalars]:
        """Return the scalars of the tag in each file, in order, folds included."""
        found = []
        for file, of_file in zip(self.files, self._limits, strict=True):
            pieces = [
                columns[tag_id] if limit is None else _before(columns[tag_id], limit)
                for segment, limit in zip(file.segments, of_file, strict=True)
                if tag_id in (columns := segment.columns())
            ]
            found.append(joined(pieces))
        return found

    def points_of_files(self, kind: str, tag_id: int) -> list[list[StoredPoint]]:
        """Return the points of this kind and tag in each file, in order, folds included."""
        return [
            [
                point
                for point in file.points.get((kind, tag_id), ())
                if (limit := of_file[point.segment]) is None or point.step < limit
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
        steps = np.array([point.step for point, _ in found], np.int64)
        if self._fold == "drop":
            keep = _not_replaced(steps)
            found = [pair for pair, stays in zip(found, keep.tolist(), strict=True) if stays]
            steps = steps[keep]
        return Points(
            steps,
            np.array([point.wall_time for point, _ in found], np.float64),
            lambda at: found[at][1](),
        )

    def encoded_points(self, kind: str, tag_id: int) -> list[tuple[StoredPoint, bytes]]:
        """Return the points of this kind and tag, each with its value of a summary as bytes.

        Folds are included. Raises OSError if a file is gone, DataLossError if it was replaced.
        """
        return [
            pair
            for file, points in zip(self.files, self.points_of_files(kind, tag_id), strict=True)
            for pair in zip(points, file.encoded(points), strict=True)
        ]

    def scalar_tags(self, purged: bool = False) -> dict[str, int]:
        """Return the tags with scalars, and their numbers; ``purged``: also of those left out."""
        sure: set[int] = set()
        unsure: set[int] = set()
        for file, of_file in zip(self.files, self._limits, strict=True):
            for segment, limit in zip(file.segments, of_file, strict=True):
                (sure if limit is None else unsure).update(segment.columns())
        sure.update(
            i for i in unsure - sure if purged or len(joined(self.scalars_of_files(i)).steps)
        )
        return {self._name(tag_id): tag_id for tag_id in sorted(sure)}

    def point_tags(self, purged: bool = False) -> dict[tuple[str, str], int]:
        """Return the kinds and tags of other points, and the numbers; ``purged``: as above."""
        keys = dict.fromkeys(key for file in self.files for key in file.points)
        return {
            (kind, self._name(tag_id)): tag_id
            for kind, tag_id in keys
            if purged or any(self.points_of_files(kind, tag_id))
        }

    def _name(self, tag_id: int) -> str:
        return self.registry.numbers.names[tag_id]


def _before(scalars: Scalars, limit: int) -> Scalars:
    return _chosen(scalars, scalars.steps < limit)


def _chosen(scalars: Scalars, keep: NDArray[np.bool_]) -> Scalars:
    if keep.all():
        return scalars
    return Scalars(scalars.steps[keep], scalars.values[keep], scalars.wall_times[keep])


def _not_replaced(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which points have an earlier step than all points after them: bool ``[n]``."""
    keep = np.ones(len(steps), np.bool_)
    keep[:-1] = steps[:-1] < np.minimum.accumulate(steps[:0:-1])[::-1]
    return keep
