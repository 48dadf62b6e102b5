"""``check``: whether event files are sound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.damage import Damage
from runhooks.events.reading.find import find_runs
from runhooks.events.reading.run_contents import RunContents
from runhooks.events.reading.tag_registry import Wanted

_ENOUGH = 8  # steps, to know how far apart they usually are
_FAR = 10  # times the usual


class Fold(NamedTuple):
    """A curve that goes back from ``step`` to ``next_step`` though no session was started there."""

    tag: str
    step: int
    next_step: int


class Gap(NamedTuple):
    """A curve without points between two steps more than ten times as far apart as usual."""

    tag: str
    step: int
    next_step: int


class FileReport(NamedTuple):
    """What was found in one event file.

    ``size`` is in bytes. ``partial``: bytes of a last record that is cut off: it is still being
    written, or was when its writer died. ``errors``: records whose checks hold, but that make no
    sense.
    """

    run: str
    path: Path
    size: int
    records: int
    partial: int
    damages: list[Damage]
    errors: list[Damage]
    folds: list[Fold]
    gaps: list[Gap]

    @property
    def sound(self) -> bool:
        """Whether all can be read and no curve folds back; gaps and a partial end are allowed."""
        return not (self.damages or self.errors or self.folds)


def check(path: str | os.PathLike[str]) -> list[FileReport]:
    """Verify every check of every record at ``path``, and that all values can be decoded.

    ``path``: as for ``read``. Reports come in the order in which the files are read.

    Raises FileNotFoundError if there is nothing at ``path``.
    """
    reports = []
    for name, found in find_runs(Path(path)).items():
        contents = RunContents(Wanted(None, None), strict=False, purge=True)
        contents.update(found.files)
        reports += _reports(name, contents)
    return reports


def _reports(run: str, contents: RunContents) -> list[FileReport]:
    reports = [
        FileReport(
            run=run,
            path=file.path,
            size=file.records.size,
            records=file.records.records,
            partial=file.records.partial,
            damages=file.records.damages,
            errors=sorted(file.errors + file.undecodable()),
            folds=[],
            gaps=[],
        )
        for file in contents.files
    ]
    for tag, steps in _curves(contents):
        _look_at_curve(tag, steps, reports)
    return reports


def _curves(contents: RunContents) -> Iterator[tuple[str, list[NDArray[np.int64]]]]:
    """Yield each tag and the steps that each file has of it."""
    for tag, tag_id in contents.scalar_tags().items():
        yield tag, [columns.steps for columns in contents.scalars(tag_id)]
    for (kind, tag), tag_id in contents.point_tags().items():
        yield (
            tag,
            [
                np.array([point.step for point in points], np.int64)
                for points in contents.points(kind, tag_id)
            ],
        )


def _look_at_curve(
    tag: str, steps_of_files: list[NDArray[np.int64]], reports: list[FileReport]
) -> None:
    steps = np.concatenate(steps_of_files)
    ends = np.cumsum([len(steps) for steps in steps_of_files])
    back = steps[1:] < steps[:-1]
    for at in np.flatnonzero(back).tolist():
        report = reports[int(np.searchsorted(ends, at + 1, "right"))]
        report.folds.append(Fold(tag, int(steps[at]), int(steps[at + 1])))
    strides = np.diff(steps.astype(np.float64))  # no int64 holds all of them
    forward = strides[strides > 0]
    if len(forward) >= _ENOUGH:
        for at in np.flatnonzero(strides > _FAR * np.median(forward)).tolist():
            report = reports[int(np.searchsorted(ends, at + 1, "right"))]
            report.gaps.append(Gap(tag, int(steps[at]), int(steps[at + 1])))
