"""``read_events``: read back, in a test, what a run has written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runhooks.events import Event, read_records
from runhooks.summary import Summary


class RecordedValue(NamedTuple):
    """One value of an event file.

    Attributes:
        step: The global step.
        tag: The tag.
        value: A float for a scalar, else the bytes of the ``Summary.Value`` message.
        wall_time: When it was written, in seconds since the epoch.
    """

    step: int
    tag: str
    value: float | bytes
    wall_time: float


def read_events(path: str | os.PathLike[str]) -> list[RecordedValue]:
    """Return the values of an event file, or of all event files of a directory, in order.

    Values that a session wrote again after a recovery appear twice.

    Args:
        path: The file or the directory, which may be empty.

    Raises:
        FileNotFoundError: If there is nothing at ``path``.
        DataLossError: If a file is damaged.
    """
    path = Path(path)
    files = sorted(path.glob("*.tfevents.*")) if path.is_dir() else [path]
    return [it for file in files for it in _values(file)]


def _values(path: Path) -> Iterator[RecordedValue]:
    with path.open("rb") as file:
        for event in map(Event.FromString, read_records(file, str(path))):
            if isinstance(event.summary, bytes):
                for value in Summary.FromString(event.summary):
                    yield RecordedValue(event.step, value.tag, value.data, event.wall_time)
