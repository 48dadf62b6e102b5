"""``read`` and ``check``: the runs at a path, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.errors import DataLossError
from runhooks.events.place import place
from runhooks.events.reading.contents import RunContents
from runhooks.events.reading.find import find_files, find_runs
from runhooks.events.reading.messages import HPARAMS, KINDS, SCALAR, Wanted, parse_hparams
from runhooks.events.reading.results import (
    Damage,
    LazyMapping,
    NameMapping,
    Point,
    Points,
    Scalars,
)
from runhooks.events.reading.rows import RowDecoders
from runhooks.events.reading.table import Exported
from runhooks.stores.path import AnyPath, path_of

_HPARAMS_TAGS = "_hparams_/*"


class Tag(NamedTuple):
    """A tag: its kind, number of points, and metadata; ``plugin`` displays it."""

    kind: str
    points: int
    plugin: str = ""
    display_name: str = ""
    description: str = ""


class Run(Exported):
    """The contents of the event files of one directory, or of one event file.

    The kinds, and the values of their points:

    - ``scalar``: columns, float64
    - ``histogram``: ``Histogram``
    - ``image``: tuple of ``Image``
    - ``audio``: tuple of ``Audio``
    - ``text``: str, or an object array of several
    - ``tensor``, ``mesh``: array
    - ``pr_curve``: float array ``[6, thresholds]``: true and false positives, true and false
      negatives, precision, recall
    - ``custom_scalars``: bytes of the layout
    - ``hparams``: bytes of the plugin's data

    Attributes:
        name: The path relative to what was read, as in TensorBoard; ``.`` if it is the same.
        path: The directory or the event file.
    """

    def __init__(self, name: str, path: AnyPath, contents: RunContents) -> None:
        self.name = name
        self.path = path
        self._contents = contents
        self._changed()

    def _changed(self) -> None:
        contents = self._contents
        for found in ("tags", "scalars"):
            self.__dict__.pop(found, None)
        self._point_tags = contents.point_tags()
        # No mapping refers to the run, so that deleting a run frees its memory at once.
        self._points = {
            kind: LazyMapping(
                f"{kind} tag",
                [tag for other, tag in self._point_tags if other == kind],
                partial(contents.points, kind),
            )
            for kind in KINDS
            if kind != SCALAR
        }

    @property
    def files(self) -> list[AnyPath]:
        """The event files, in the order of reading."""
        return [file.path for file in self._contents.files]

    @cached_property
    def tags(self) -> Mapping[str, Tag]:
        """All tags, sorted. A tag of several kinds has the first of them."""
        found = {tag: (SCALAR, len(columns.steps)) for tag, columns in self.scalars.items()}
        for kind, tag in self._point_tags:
            found.setdefault(tag, (kind, len(self.points(kind)[tag])))
        of = self._contents.metadata.of
        return {
            tag: Tag(*found[tag], (it := of(tag)).plugin, it.display_name, it.description)
            for tag in sorted(found)
        }

    @cached_property
    def scalars(self) -> Mapping[str, Scalars]:
        """The scalar tags, sorted, and their columns."""
        contents = self._contents
        return LazyMapping("scalar tag", contents.scalar_tags(), contents.scalars)

    def points(self, kind: str) -> Mapping[str, Points]:
        """Return the tags of ``kind``, sorted, and their points.

        Raises:
            ValueError: ``kind`` is unknown, or ``"scalar"``.
        """
        if kind not in [*self._points]:  # a list, which has no hash, is refused as well
            raise ValueError(f"kind must be one of {', '.join(self._points)}, got {kind!r}")
        return self._points[kind]

    @property
    def histograms(self) -> Mapping[str, Points]:
        """The points of kind histogram."""
        return self.points("histogram")

    @property
    def images(self) -> Mapping[str, Points]:
        """The points of kind image."""
        return self.points("image")

    @property
    def audio(self) -> Mapping[str, Points]:
        """The points of kind audio."""
        return self.points("audio")

    @property
    def texts(self) -> Mapping[str, Points]:
        """The points of kind text."""
        return self.points("text")

    @property
    def tensors(self) -> Mapping[str, Points]:
        """The points of kind tensor, which belong to no known plugin."""
        return self.points("tensor")

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyper-parameters: names and values (float, str or bool).

        Raises OSError if the file is gone, DataLossError if they are malformed.
        """
        found: dict[str, Any] = {}
        for points in self.points(HPARAMS).values():
            for point in points:
                try:
                    found |= parse_hparams(point.value)
                except ValueError as error:
                    raise DataLossError(
                        f"the hyper-parameters in {self.path} cannot be decoded: {error}",
                        path=str(self.path),
                    ) from error
        return found

    @property
    def session_logs(self) -> list[Point]:
        """Points whose values are ``SessionLog`` tuples."""
        return [log for file in self._contents.files for log in file.logs]

    @property
    def graph(self) -> bytes | None:
        """The bytes of the last GraphDef, or None.

        Raises OSError if the file is gone, DataLossError if it was replaced.
        """
        graphs = (file.graph for file in reversed(self._contents.files))
        return next((graph for graph in graphs if graph is not None), None)

    @property
    def damages(self) -> list[Damage]:
        """The damaged or malformed records, and the files that cannot be read."""
        files = self._contents.files
        return [damage for file in files for damage in sorted(file.records.damages + file.errors)]

    def update(self) -> int:
        """Read what was added since, and return the number of new points.

        A truncated last record waits for its rest. All points of a file that was replaced, or is
        shorter than before, count as new; those of a file that is gone are dropped. Columns that
        were returned before stay as they are. A file that cannot be read is in ``damages`` until it
        can.

        Raises FileNotFoundError if the directory is gone, OSError if the run is one file that
        cannot be read.
        """
        return self.update_files(find_files(self.path))

    def update_files(self, files: list[AnyPath]) -> int:
        try:
            return self._contents.update(files, skip_unreadable=files != [self.path])
        finally:
            self._changed()

    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        return {self.name: self.scalars}

    def hparams_of_runs(self) -> Mapping[str, Mapping[str, Any]]:
        return {self.name: self.hparams}

    def __repr__(self) -> str:
        return f"<Run {self.name!r} of {len(self._contents.files)} event files at {self.path}>"


class Runs(NameMapping[Run], Exported):
    """The runs that ``read`` found at ``path`` by name, in natural order: ``r2`` before ``r10``."""

    def __init__(self, path: AnyPath, wanted: Wanted, purge: bool) -> None:
        super().__init__("run", {})
        self.path = path
        self._rows = RowDecoders(wanted)
        self._purge = purge
        self.update()

    @property
    def only(self) -> Run:
        """The only run. Raises ValueError if there is not exactly one."""
        if len(self) != 1:
            names = ", ".join(map(repr, self)) or "none"
            raise ValueError(f"{str(self.path)!r} must hold exactly one run, found {names}")
        return next(iter(self.values()))

    @property
    def damages(self) -> list[Damage]:
        """The damages of all runs, and the directories that cannot be read."""
        return [*self._unreadable, *(d for run in self.values() for d in run.damages)]

    def update(self) -> int:
        """As ``Run.update``, in new runs too; those that are gone are dropped."""
        found, self._unreadable = find_runs(self.path)
        self._values = {
            name: self._values.get(name)
            or Run(name, run.path, RunContents(self._rows, self._purge))
            for name, run in found.items()
        }
        return sum(run.update_files(found[name].files) for name, run in self.items())

    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        return {name: run.scalars for name, run in self.items()}

    def hparams_of_runs(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: run.hparams for name, run in self.items()}

    def __repr__(self) -> str:
        return f"<Runs at {self.path}: {', '.join(map(repr, self)) or 'none'}>"


def read(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    purge: bool = True,
) -> Runs:
    """Return the runs found in ``path``, by name.

    Every CRC is verified. Damaged records, and files that cannot be read, are skipped and listed in
    ``damages``. Hyper-parameters are always decoded.

    Args:
        path: An event file, a run directory, or a directory above runs.
        tags: Names or shell patterns (``loss*``) of the tags to decode; None: all. ``w[0]`` also
            matches itself. Runs without a match are included.
        kinds: The kinds to decode, of those at ``Run``; None: all.
        purge: Whether to drop points that a later session repeated after it restarted at an earlier
            step.

    Raises:
        FileNotFoundError: There is nothing at ``path``.
        ValueError: A kind is unknown.
        OSError: ``path`` is a file that cannot be read, or is in a store that does not answer.
        DataLossError: ``path`` is a file without events.
    """
    wanted = Wanted(_with(_HPARAMS_TAGS, tags), _with(HPARAMS, kinds))
    runs = Runs(path_of(place(path=path)), wanted, purge)
    skipped = sum(damage.skipped for damage in runs.damages)
    if skipped and runs.path.is_file() and runs.path.stat().st_size <= skipped:
        raise DataLossError(
            f"{runs.path} must be an event file, but contains no event: it is another kind of "
            "file, or all of it is damaged",
            path=str(runs.path),
        )
    return runs


def _with(always: str, names: str | Sequence[str] | None) -> list[str] | None:
    if names is None:
        return None
    return [names, always] if isinstance(names, str) else [*names, always]


class Fold(NamedTuple):
    """A curve that goes back from ``step`` to ``next_step`` without a session restart."""

    tag: str
    step: int
    next_step: int


class FileReport(NamedTuple):
    """The state of one event file.

    ``size``: in bytes. ``records``: how many are sound. ``partial``: bytes of a truncated last
    record, perhaps still being written. ``damages``: stretches that cannot be read. ``errors``:
    malformed records whose CRCs are right. ``folds``: curves that go back.
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
    """Verify every CRC at ``path``, decode all values, and return a report for each file.

    Directories that cannot be read are last. Raises FileNotFoundError if there is nothing at
    ``path``.
    """
    reports = []
    rows = RowDecoders(Wanted())
    root = path_of(place(path=path))
    runs, unreadable = find_runs(root)
    for name, found in runs.items():
        contents = RunContents(rows, purge=True)
        contents.update(found.files, not found.is_file)
        reports += _reports(name, contents)
    for damage in unreadable:
        name = damage.path.relative_to(root).as_posix()
        reports.append(FileReport(name, damage.path, 0, 0, 0, [damage], [], []))
    return reports


def _reports(run: str, contents: RunContents) -> list[FileReport]:
    reports = []
    for file in contents.files:
        it, errors = file.records, sorted(file.errors + file.undecodable())
        reports.append(
            FileReport(run, file.path, it.size, it.records, it.partial, it.damages, errors, [])
        )
    for tag, steps_of_files in _curves(contents):
        steps = np.concatenate(steps_of_files)
        ends = np.cumsum([len(of_file) for of_file in steps_of_files])
        for at in np.flatnonzero(steps[1:] < steps[:-1]).tolist():
            report = reports[int(np.searchsorted(ends, at + 1, "right"))]
            report.folds.append(Fold(tag, int(steps[at]), int(steps[at + 1])))
    return reports


def _curves(contents: RunContents) -> Iterator[tuple[str, list[NDArray[np.int64]]]]:
    for tag in contents.scalar_tags():
        yield tag, [columns.steps for columns in contents.scalars_of_files(tag)]
    for kind, tag in contents.point_tags():
        if kind != HPARAMS:  # a restart replaces none of them
            of_files = contents.points_of_files(kind, tag)
            yield tag, [np.array([it.step for it in points], np.int64) for _, points in of_files]
