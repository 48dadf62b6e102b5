"""``read_events``: a sound event file, event by event."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from runhooks.errors import DataLossError
from runhooks.events.event import Event
from runhooks.events.record import read_records


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """Yield the events of the event file at ``path``; a last one that is cut off is left out.

    Raises OSError if it cannot be opened, DataLossError if it is damaged.
    """
    path = Path(path)
    with path.open("rb") as file:
        for index, payload in enumerate(read_records(file, str(path))):
            try:
                event = Event.FromString(payload)
            except ValueError as error:
                raise DataLossError(
                    f"{path} is damaged: its record {index} is not an event ({error})",
                    path=str(path),
                ) from error
            yield event
