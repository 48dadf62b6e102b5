"""``read``: event files as columns; ``read_events``: event by event."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from runhooks.errors import DataLossError
from runhooks.events.format.event import Event
from runhooks.events.format.record import read_records
from runhooks.events.place import place
from runhooks.events.reading.opened import open_to_scan
from runhooks.events.reading.run_contents import OnFold
from runhooks.events.reading.runs import Runs
from runhooks.events.reading.tag_registry import Wanted
from runhooks.stores.path import path_of


def read(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    strict: bool = False,
    purge: bool = True,
    fold: OnFold = "keep",
) -> Runs:
    """Return the runs found in ``path``, by name.

    Every CRC of every record is verified. Damaged records are skipped and listed in ``damages``,
    and so are files that cannot be read.

    Args:
        path: An event file, a run directory, or a directory above runs.
        tags: Names or shell patterns (``loss*``) of the tags to decode; None: all. A name with
            brackets, such as ``w[0]``, also matches itself. Runs without a match have no tags.
        kinds: The kinds to decode, of those at ``Run``; None: all.
        strict: Whether to raise at the first damage instead of skipping it.
        purge: Whether to drop points that a later session repeated after restarting at an earlier
            step.
        fold: What to do if a tag goes back to an earlier step without a restart: ``"keep"`` all
            points, or ``"drop"`` those followed by one of the same or an earlier step, as
            TensorBoard does.

    Raises:
        FileNotFoundError: If there is nothing at ``path``.
        ValueError: If a kind or ``fold`` is unknown.
        OSError: If ``path`` is a file that cannot be read, or is in a store that does not answer;
            with ``strict``, also if a file in ``path`` cannot be read.
        DataLossError: If ``path`` is a file without a single event, or, if ``strict``, damaged.
    """
    runs = Runs(path_of(place(path=path)), Wanted(tags, kinds), strict, purge, fold)
    skipped = sum(damage.skipped for damage in runs.damages)
    if skipped and runs.path.is_file() and runs.path.stat().st_size <= skipped:
        raise DataLossError(
            f"{runs.path} must be an event file, but contains no event: it is another kind of "
            "file, or all of it is damaged",
            path=str(runs.path),
        )
    return runs


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """Yield the events of the event file at ``path``, without a truncated last one.

    Raises:
        OSError: If it cannot be opened.
        DataLossError: If it is damaged.
    """
    path = path_of(place(path=path))
    with open_to_scan(path) as file:
        for index, payload in enumerate(read_records(file, str(path))):
            try:
                event = Event.FromString(payload)
            except ValueError as error:
                raise DataLossError(
                    f"{path} is damaged: its record {index} is not an event ({error})",
                    path=str(path),
                ) from error
            yield event
