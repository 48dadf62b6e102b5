"""``EventSource``: a directory of event files, or one of them, by TensorBoard's types of data.

What is a scalar for ``events.read`` may have been written as a number or, as by TensorFlow 2, as a
tensor. TensorBoard's reader tells them apart, and so does this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runhooks.events import Scalars, read_records
from runhooks.events.format.proto import as_bytes, as_float, fields
from runhooks.events.place import place
from runhooks.events.reading.blocks import open_to_scan
from runhooks.events.reading.contents import RunContents, StoredPoint
from runhooks.events.reading.find import find_files
from runhooks.events.reading.messages import TENSOR, Metadata, TagNumbers, Wanted, parse_value
from runhooks.events.reading.rows import RowDecoders
from runhooks.stores.path import AnyPath, StorePath, path_of

SCALARS, HISTOGRAMS, IMAGES, AUDIO, TENSORS = (
    "scalars",
    "histograms",
    "images",
    "audio",
    "tensors",
)
_TYPES = {"scalar": SCALARS, "histogram": HISTOGRAMS, "image": IMAGES, "audio": AUDIO}
_PLUGINS = {"scalar": "scalars", "histogram": "histograms", "image": "images", "audio": "audio"}


class Place(NamedTuple):
    """Where the points of a tag are: its kind for ``events.read``, and its number."""

    kind: str
    tag_id: int


def all_rows() -> RowDecoders:
    """Return decoders of all tags and kinds, which several sources may share."""
    return RowDecoders(TagNumbers(Wanted(None, None)))


class EventSource:
    """The event files of ``path``, a directory or a file, read by ``reload``.

    Args:
        path: The directory, without those in it, or the file.
        purge: Whether to drop what a restarted session wrote again.
        rows: Decoders that are shared.

    Attributes:
        places: The tags by type of data, each with its place; those whose points were all dropped
            too.
    """

    def __init__(
        self, path: str | os.PathLike[str], purge: bool = True, rows: RowDecoders | None = None
    ) -> None:
        self.path = path if isinstance(path, StorePath) else path_of(place(path=path))
        self.places: dict[str, dict[str, Place]] = {}
        self._is_read = False
        self._contents = RunContents(rows or all_rows(), purge)

    def reload(self, files: Sequence[AnyPath] | None = None) -> None:
        """Read what is new in ``files``, or in all event files there are.

        Raises:
            FileNotFoundError: There is nothing at ``path``.
            OSError: ``path`` is a file that cannot be read.
        """
        if files is None:
            files = find_files(self.path)
        is_listed = files and isinstance(self.path, StorePath)
        if not is_listed and not self.path.exists():
            raise FileNotFoundError(f"path must be an event file or a directory, got {self.path}")
        self._contents.update(files, skip_unreadable=list(files) != [self.path])
        self._is_read = True
        self.places = {}
        for tag, tag_id in self._contents.scalar_tags(purged=True).items():
            self._put(tag, Place("scalar", tag_id))
        for (kind, tag), tag_id in self._contents.point_tags(purged=True).items():
            self._put(tag, Place(kind, tag_id))
        self.places = {kind: dict(sorted(tags.items())) for kind, tags in self.places.items()}

    def _put(self, tag: str, place: Place) -> None:
        kind = self._type(tag, place)
        if kind is not None:
            self.places.setdefault(kind, {})[tag] = place

    def _type(self, tag: str, place: Place) -> str | None:
        if place.kind in _TYPES:
            is_tensor = self.metadata(tag).plugin == _PLUGINS[place.kind]
            return TENSORS if is_tensor else _TYPES[place.kind]
        if place.kind != "hparams":
            return TENSORS
        contents = (
            parse_value(message, 0, len(message)).content
            for _, message in self._contents.encoded_points(*place)[:1]
        )
        is_tensor = any(it is not None and it.number == TENSOR for it in contents)
        return TENSORS if is_tensor else None

    def tags(self, kind: str) -> list[str]:
        """Return the tags of a type of data, sorted."""
        return list(self.places.get(kind, ()))

    def place(self, kind: str, tag: str) -> Place:
        """Return the place of ``tag``. Raises KeyError if there is none of that type."""
        if tag not in (known := self.places.get(kind, {})):
            if not self._is_read:
                raise KeyError(f"no {kind} have the tag {tag!r} yet: call Reload() first")
            tags = ", ".join(map(repr, known)) or "none at all"
            raise KeyError(f"no {kind} have the tag {tag!r}, among {tags}")
        return known[tag]

    def scalars(self, tag: str, kind: str = SCALARS) -> Scalars:
        """Return the columns of ``tag``."""
        return self._contents.scalars(self.place(kind, tag).tag_id)

    def points(self, kind: str, tag: str) -> list[tuple[StoredPoint, bytes]]:
        """Return the points of ``tag``, each with its value of a summary as bytes."""
        return self._contents.encoded_points(*self.place(kind, tag))

    def metadata(self, tag: str) -> Metadata:
        """Return what was written about ``tag``; empty if nothing was."""
        return self._contents.registry.metadata(tag)

    def all_metadata(self) -> Mapping[str, Metadata]:
        """Return the metadata of all tags that have some."""
        numbers = self._contents.registry.numbers
        found = {tag: self.metadata(tag) for tag in numbers.names}
        return {tag: metadata for tag, metadata in found.items() if metadata != Metadata()}

    def graph(self) -> bytes | None:
        """Return the last graph, a GraphDef, or None."""
        graphs = (file.graph for file in reversed(self._contents.files))
        return next((graph for graph in graphs if graph is not None), None)

    def messages(self, number: int) -> list[bytes]:
        """Return the messages in field ``number`` of events, in order."""
        return [message for file in self._contents.files for message in file.messages(number)]

    def first_event(self) -> dict[int, float | bytes | int]:
        """Return the fields of the first event; empty if there is none."""
        return next(self._first_events(), {})

    def _first_events(self) -> Iterator[dict[int, float | bytes | int]]:
        for path in find_files(self.path):
            with open_to_scan(path) as file:
                for payload in read_records(file, str(path)):
                    event = {field.number: field.value for field in fields(payload)}
                    yield {**event, 1: as_float(as_bytes(event.get(1, bytes(8))))}
                    break
