"""Reading back, in a test, what a run has written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from runhooks import events
from runhooks.summary import Summary


class RecordedValue(NamedTuple):
    """One value of an event file. ``wall_time``: seconds since the epoch.

    ``value``: a float if it is a scalar, else the bytes of its ``Summary.Value`` message.
    """

    step: int
    tag: str
    value: float | bytes
    wall_time: float


def read_events(path: str | os.PathLike[str]) -> list[RecordedValue]:
    """Return the values in an event file, or in all those of a directory, in order.

    What a session wrote again after it was restored is in it twice. A directory without event
    files gives none.

    Raises FileNotFoundError if there is nothing at ``path``; DataLossError if a file is damaged.
    """
    path = Path(path)
    files = sorted(path.glob("*.tfevents.*")) if path.is_dir() else [path]
    return [
        RecordedValue(event.step, value.tag, value.data, event.wall_time)
        for file in files
        for event in events.read_events(file)
        if isinstance(event.summary, bytes)
        for value in Summary.FromString(event.summary)
    ]
