"""``SummaryReader``: tbparse's reader, event files as data frames of pandas."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from runhooks.events.place import place
from runhooks.events.reading.find import FoundTree, find_tree
from runhooks.events.reading.row_decoder import RowDecoders
from runhooks.stores.path import path_of
from runhooks.tensorboard.event_rows import (
    EVENT_TYPES,
    image_of_tensor,
    rows_of,
    sound_of_tensor,
    tags_of,
)
from runhooks.tensorboard.event_source import EventSource, all_rows
from runhooks.tensorboard.frames import FileRows, frame
from runhooks.tensorboard.histogram_functions import (
    density,
    distribution,
    histogram_of_tensor,
    in_bins,
)

_EXTRA_COLUMNS = frozenset(
    (
        *("dir_name", "file_name", "wall_time"),
        *("min", "max", "num", "sum", "sum_squares"),
        *("width", "height", "content_type", "length_frames", "sample_rate"),
    )
)


class SummaryReader:
    """The event files below a directory, or one of them, as data frames, one for each type.

    It has the interface of tbparse's ``SummaryReader``. Tags are sorted, and neither images nor
    sounds need TensorFlow.

    Args:
        log_path: The directory or the event file.
        pivot: Whether a frame has a column for each tag, with several values at one step in a list,
            rather than a row for each point.
        extra_columns: A set of more columns than ``step``, ``tag`` and ``value``: ``dir_name``,
            ``file_name``, ``wall_time``; of histograms ``min``, ``max``, ``num``, ``sum``,
            ``sum_squares``; of images ``width``, ``height``; of sounds ``content_type``,
            ``length_frames``, ``sample_rate``.
        event_types: A set of the types to read: ``scalars``, ``tensors``, ``histograms``,
            ``images``, ``audio``, ``hparams``, ``text``; None: all.

    Raises:
        ValueError: There is nothing at ``log_path``, or a set is something else.
        KeyError: A column or type is unknown.
    """

    def __init__(
        self,
        log_path: str | os.PathLike[str],
        *,
        pivot: bool = False,
        extra_columns: set[str] | None = None,
        event_types: set[str] | None = None,
    ) -> None:
        columns = _checked("extra_columns", extra_columns or set(), _EXTRA_COLUMNS)
        types = _checked("event_types", event_types or set(EVENT_TYPES), frozenset(EVENT_TYPES))
        path = path_of(place(log_path=log_path))
        tree = find_tree(path)
        if not tree.inside and not path.exists():
            raise ValueError(f"log_path must be an event file or a directory, got {log_path!r}")
        self._pivot = pivot
        self._extra_columns = columns
        self._event_types = types
        self._read(tree, True, all_rows())
        self._log_path = os.fspath(log_path)

    def _read(self, tree: FoundTree, holds_events: bool, rows: RowDecoders) -> None:
        self._log_path = str(tree.path)
        self._is_folder = tree.inside is not None
        self._children: dict[str, SummaryReader] = {}
        self._source: EventSource | None = None
        for name, child in (tree.inside or {}).items():
            self._children[name] = copy.copy(self)
            self._children[name]._read(child, child.is_event_file, rows)
        if holds_events and not self._is_folder:
            self._source = EventSource(tree.path, rows=rows)
            self._source.reload([tree.path])

    @property
    def log_path(self) -> str:
        """The directory or file that was read."""
        return self._log_path

    @property
    def children(self) -> dict[str, SummaryReader]:
        """The readers of the directories and files in the directory, by name."""
        return dict(self._children)

    @property
    def tags(self) -> dict[str, list[str]]:
        """The tags by type."""
        return {event_type: self._tags(event_type) for event_type in EVENT_TYPES}

    def get_tags(self, event_type: str | None = None) -> Any:
        """Return the tags of ``event_type``, or a dict of those of all types."""
        if event_type is None:
            return self.tags
        _check_type(event_type)
        return self._tags(event_type)

    def get_events(self, event_type: str) -> Any:
        """Return a ``pandas.DataFrame`` of all events of ``event_type``; empty if there are none.

        Raises:
            ValueError: The type is unknown, or was left out of ``event_types``.
            ImportError: pandas, or Pillow for images, is not installed.
        """
        _check_type(event_type)
        if event_type not in self._event_types:
            raise ValueError(
                f"the event type {event_type!r} was left out: event_types has "
                f"{', '.join(sorted(self._event_types))}"
            )
        files = [
            FileRows(folder, PurePath(leaf.log_path).name, leaf._rows(event_type))
            for folder, leaf in self._leaves("")
        ]
        return frame(files, self._extra_columns, self._pivot)

    @property
    def scalars(self) -> Any:
        """The frame of numbers."""
        return self.get_events("scalars")

    @property
    def tensors(self) -> Any:
        """The frame of tensors: whatever TensorFlow 2 writes, but for text."""
        return self.get_events("tensors")

    @property
    def histograms(self) -> Any:
        """The frame of histograms."""
        return self.get_events("histograms")

    @property
    def images(self) -> Any:
        """The frame of images, uint8 ``[height, width, channels]``."""
        return self.get_events("images")

    @property
    def audio(self) -> Any:
        """The frame of sounds, float32 ``[frames, channels]``, -1.0 to 1.0."""
        return self.get_events("audio")

    @property
    def hparams(self) -> Any:
        """The frame of hyperparameters."""
        return self.get_events("hparams")

    @property
    def text(self) -> Any:
        """The frame of texts."""
        return self.get_events("text")

    tensor_to_histogram = staticmethod(histogram_of_tensor)
    buckets_to_histogram_dict = staticmethod(histogram_of_tensor)
    tensor_to_image = staticmethod(image_of_tensor)
    tensor_to_audio = staticmethod(sound_of_tensor)
    histogram_to_cdf = staticmethod(distribution)
    histogram_to_pdf = staticmethod(density)
    histogram_to_bins = staticmethod(in_bins)

    def __getitem__(self, name: str) -> SummaryReader:
        return self._children[name]

    def __repr__(self) -> str:
        return f"SummaryReader(log_path={self._log_path!r})"

    def _tags(self, event_type: str) -> list[str]:
        if self._source is not None:
            wanted = event_type in self._event_types
            return tags_of(self._source, event_type) if wanted else []
        tags = (tag for child in self._children.values() for tag in child._tags(event_type))
        return list(dict.fromkeys(tags))

    def _rows(self, event_type: str) -> list[Any]:
        if self._source is None:
            return []
        return list(rows_of(self._source, event_type, self._extra_columns))

    def _leaves(self, folder: str) -> Iterator[tuple[str, SummaryReader]]:
        """Yield the readers of files, each with the path of its directory from here."""
        if not self._is_folder:
            yield folder, self
        for name, child in self._children.items():
            inner = "/".join(filter(None, (folder, name))) if child._is_folder else folder
            yield from child._leaves(inner)


def _checked(argument: str, given: Any, known: frozenset[str]) -> set[str]:
    if not isinstance(given, set):
        raise ValueError(f"{argument} must be a set, got {given!r}")
    if unknown := given - known:
        names = ", ".join(sorted(known))
        raise KeyError(f"{argument} must be some of {names}, got {', '.join(sorted(unknown))}")
    return set(given)


def _check_type(event_type: str) -> None:
    if event_type not in EVENT_TYPES:
        raise ValueError(f"event_type must be one of {', '.join(EVENT_TYPES)}, got {event_type!r}")
