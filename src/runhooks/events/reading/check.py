"""``check``: find what is wrong with event files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.place import place
from runhooks.events.reading.contents import RunContents
from runhooks.events.reading.find import find_runs
from runhooks.events.reading.messages import HPARAMS, Wanted
from runhooks.events.reading.results import Damage
from runhooks.events.reading.rows import RowDecoders
from runhooks.stores.path import AnyPath, path_of


class Fold(NamedTuple):
    """A curve that goes back from ``step`` to ``next_step`` without a session restart."""

    tag: str
    step: int
    next_step: int


class FileReport(NamedTuple):
    """The state of one event file.

    Attributes:
        run: The name of the run.
        path: The file.
        size: Its size in bytes.
        records: Number of sound records.
        partial: Bytes of a truncated last record, which is still being written or was when its
            writer died.
        damages: Stretches of the file that cannot be read.
        errors: Records whose CRCs are right but whose content is malformed.
        folds: Curves that go back.
    """

    run: str
    path: AnyPath
    size: int
    records: int
    partial: int
    damages: list[Damage]
    errors: list[Damage]
    folds: list[Fold]

    @property
    def sound(self) -> bool:
        """Whether everything can be read and no curve goes back; ``partial`` is fine."""
        return not (self.damages or self.errors or self.folds)


def check(path: str | os.PathLike[str]) -> list[FileReport]:
    """Verify every CRC of every record at ``path``, and decode all values.

    Args:
        path: An event file, a run directory, or a directory above runs.

    Returns:
        A report for each file, in the order in which the files are read, and then one for each
        directory that cannot be read.

    Raises:
        FileNotFoundError: If there is nothing at ``path``.
    """
    reports = []
    rows = RowDecoders(Wanted())
    root = path_of(place(path=path))
    found_runs = find_runs(root)
    for name, found in found_runs.runs.items():
        contents = RunContents(rows, purge=True)
        contents.update(found.files, not found.is_file)
        reports += _reports(name, contents)
    for damage in found_runs.unreadable:
        name = damage.path.relative_to(root).as_posix()
        reports.append(FileReport(name, damage.path, 0, 0, 0, [damage], [], []))
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
        )
        for file in contents.files
    ]
    for tag, steps in _curves(contents):
        _add_folds(tag, steps, reports)
    return reports


def _curves(contents: RunContents) -> Iterator[tuple[str, list[NDArray[np.int64]]]]:
    """Yield each tag and its steps in each file."""
    for tag, tag_id in contents.scalar_tags().items():
        yield tag, [columns.steps for columns in contents.scalars_of_files(tag_id)]
    for (kind, tag), tag_id in contents.point_tags().items():
        if kind == HPARAMS:  # a restart replaces none of them
            continue
        yield (
            tag,
            [
                np.array([point.step for point in points], np.int64)
                for points in contents.points_of_files(kind, tag_id)
            ],
        )


def _add_folds(
    tag: str, steps_of_files: list[NDArray[np.int64]], reports: list[FileReport]
) -> None:
    steps = np.concatenate(steps_of_files)
    ends = np.cumsum([len(steps) for steps in steps_of_files])
    back = steps[1:] < steps[:-1]
    for at in np.flatnonzero(back).tolist():
        report = reports[int(np.searchsorted(ends, at + 1, "right"))]
        report.folds.append(Fold(tag, int(steps[at]), int(steps[at + 1])))
