"""``Run``: what the event files of one directory hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runhooks.errors import DataLossError
from runhooks.events.reading.damage import Damage
from runhooks.events.reading.export import Exported
from runhooks.events.reading.find import FoundRun, find_files
from runhooks.events.reading.hparams import parse_hparams
from runhooks.events.reading.kinds import KINDS, SCALAR
from runhooks.events.reading.lazy_mapping import LazyMapping
from runhooks.events.reading.points import Point, Points
from runhooks.events.reading.run_contents import RunContents, joined
from runhooks.events.reading.scalars import Scalars


class Tag(NamedTuple):
    """What is known of a tag. ``points``: how many it has. ``plugin``: who shows it."""

    kind: str
    points: int
    plugin: str = ""
    display_name: str = ""
    description: str = ""


class Run(Exported):
    """What the event files of one directory, or one event file, hold.

    Kinds, and the type of a point's value: ``scalar`` (columns, float64), ``histogram``
    (``Histogram``), ``image`` (tuple of ``Image``), ``audio`` (tuple of ``Audio``), ``text`` (str,
    or an object array of them if it holds several), ``tensor`` (array), ``pr_curve`` (float array
    ``[6, thresholds]``: true and false positives, true and false negatives, precision, recall),
    ``mesh`` (array), ``custom_scalars`` (bytes of the layout), ``hparams`` (bytes of the plugin's
    data).
    """

    def __init__(self, name: str, found: FoundRun, contents: RunContents) -> None:
        self._name = name
        self._path = found.path
        self._contents = contents
        self._point_tags: dict[tuple[str, str], int] = {}
        self._tags: Mapping[str, Tag] | None = None
        self._scalars: Mapping[str, Scalars] | None = None
        self._points: dict[str, Mapping[str, Points]] = {}

    @property
    def name(self) -> str:
        """The path relative to what was read, as TensorBoard names runs; ``.`` for itself."""
        return self._name

    @property
    def path(self) -> Path:
        """The directory, or the one event file."""
        return self._path

    @property
    def files(self) -> list[Path]:
        """The event files, in the order in which they are read."""
        return [file.path for file in self._contents.files]

    @property
    def tags(self) -> Mapping[str, Tag]:
        """All tags, sorted. One that is of several kinds stands under the first of these."""
        if self._tags is None:
            found = {tag: (SCALAR, len(self.scalars[tag].steps)) for tag in self.scalars}
            for kind, tag in self._point_tags:
                found.setdefault(tag, (kind, len(self.points(kind)[tag])))
            self._tags = {tag: self._tag(tag, *found[tag]) for tag in sorted(found)}
        return self._tags

    @property
    def scalars(self) -> Mapping[str, Scalars]:
        """The scalar tags, sorted, and their columns."""
        if self._scalars is None:
            # No mapping refers to the run: a run that is dropped is to free its memory at once.
            contents = self._contents
            ids = contents.scalar_tags()
            self._scalars = LazyMapping(
                "scalar tag", ids, lambda tag: joined(contents.scalars(ids[tag]))
            )
        return self._scalars

    def points(self, kind: str) -> Mapping[str, Points]:
        """Return the tags of ``kind``, which is not scalar, sorted, and their points.

        Raises ValueError if there is no such kind.
        """
        if kind not in KINDS or kind == SCALAR:
            others = ", ".join(other for other in KINDS if other != SCALAR)
            raise ValueError(f"kind must be among {others}, got {kind!r}")
        if kind not in self._points:
            contents = self._contents
            ids = {tag: i for (other, tag), i in self._point_tags.items() if other == kind}
            self._points[kind] = LazyMapping(
                f"{kind} tag", ids, lambda tag: contents.decoded(kind, ids[tag])
            )
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
        """The points of kind tensor: those of no plugin that has a kind of its own."""
        return self.points("tensor")

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters: names and values (float, str or bool); empty if there are none.

        Raises OSError if the file is gone; DataLossError if they make no sense.
        """
        found: dict[str, Any] = {}
        for points in self.points("hparams").values():
            for point in points:
                try:
                    found |= parse_hparams(point.value)
                except ValueError as error:
                    raise DataLossError(
                        f"the hyperparameters in {self._path} cannot be decoded: {error}",
                        path=str(self._path),
                    ) from error
        return found

    @property
    def session_logs(self) -> list[Point]:
        """What was noted on sessions; the value of each point is a ``SessionLog``."""
        return [log for file in self._contents.files for log in file.logs]

    @property
    def graph(self) -> bytes | None:
        """The last graph written; None if there is none.

        It is the bytes of TensorFlow's GraphDef message, for ``GraphDef.FromString``. Raises
        OSError if the file is gone; DataLossError if another one is in its place.
        """
        graphs = (file.graph for file in reversed(self._contents.files))
        return next((graph for graph in graphs if graph is not None), None)

    @property
    def damages(self) -> list[Damage]:
        """What could not be read: damaged, or no event."""
        files = self._contents.files
        return [damage for file in files for damage in sorted(file.records.damages + file.errors)]

    def update(self) -> int:
        """Read what was written since; return the number of new points.

        Only new bytes are read. A last record that is cut off waits for its rest. A file that was
        replaced, or is shorter than it was, is read anew, and all of its points count as new; what
        was in a file that is gone is dropped. Columns that were handed out before stay as they are.

        Raises OSError if a file cannot be read; DataLossError in strict mode at a new damage.
        """
        try:
            return self._contents.update(find_files(self._path))
        finally:
            self._changed()

    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        return {self._name: self.scalars}

    def __repr__(self) -> str:
        return f"<Run {self._name!r} of {len(self._contents.files)} event files at {self._path}>"

    def _changed(self) -> None:
        self._tags = self._scalars = None
        self._points = {}
        self._point_tags = self._contents.point_tags()

    def _tag(self, tag: str, kind: str, points: int) -> Tag:
        said = self._contents.registry.metadata(tag)
        return Tag(kind, points, said.plugin, said.display_name, said.description)
