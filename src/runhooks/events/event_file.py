"""``EventFile``: one new event file, in which there are only ever whole records."""

from __future__ import annotations

import itertools
import os
import platform
import re
from pathlib import Path

from runhooks import clock
from runhooks.events.deleted import is_elsewhere, refuse_deleted
from runhooks.events.event import FILE_VERSION, Event
from runhooks.events.record import frame

_STAMPED = re.compile(r"events\.out\.tfevents\.(\d{10})\.")

_counter = itertools.count()


class EventFile:
    """Makes a new event file in ``logdir``, and ``logdir`` if it is missing.

    The name ends in ``suffix``. No file is ever reused: readers take the files of a directory in
    the order of their names, so the new name sorts after those that are there, even if these were
    made in this second or by a clock that was ahead.

    Raises OSError, naming the directory, if it cannot be written.
    """

    def __init__(self, logdir: str, suffix: str = "") -> None:
        now = clock.wall()
        try:
            directory = Path(logdir).absolute()
            directory.mkdir(parents=True, exist_ok=True)
            stamp = max(int(now), _newest_stamp(directory) + 1)
            name = f"events.out.tfevents.{stamp:010d}.{platform.node()}.{os.getpid()}"
            self.path = directory / f"{name}.{next(_counter)}{suffix}"
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            error.add_note(f"logdir must be a directory that can be written, got {logdir!r}")
            raise
        self._size = 0
        try:
            self.write(frame(Event(now, file_version=FILE_VERSION).SerializeToString()))
        except OSError:
            self.close()
            raise

    def write(self, records: bytes | memoryview) -> None:
        """Hand ``records``, which are whole ones, to the operating system: all or nothing.

        Raises OSError, naming the file, if it cannot be written or was deleted.
        """
        refuse_deleted(self._file, self.path)
        rest = memoryview(records)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # A torn record would hide all that is written after it.
            self._file.truncate(self._size)
            self._file.seek(self._size)
            error.filename = str(self.path)
            raise
        self._size += len(records)

    @property
    def is_gone(self) -> bool:
        """Whether it is not where it was made any more."""
        return self._file.closed or is_elsewhere(self._file, self.path)

    def close(self) -> None:
        """Close the file; again: nothing happens."""
        self._file.close()


def _newest_stamp(directory: Path) -> int:
    stamps = (_STAMPED.match(path.name) for path in directory.iterdir())
    return max((int(stamp[1]) for stamp in stamps if stamp), default=0)
