"""``EventFile``: one new event file on a disk, which only ever contains whole records."""

from __future__ import annotations

import errno
import itertools
import os
import platform
import re
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any

from runhooks import clock
from runhooks.errors import add_note
from runhooks.events.format.event import FILE_VERSION, Event
from runhooks.events.format.record import complete_records, frame
from runhooks.events.place import place
from runhooks.stores import is_url


def local_path(**named: Any) -> str:
    """Return the path that is the one argument, as ``place`` does.

    Raises:
        TypeError: If it is not a path; the message names the argument.
        ValueError: If it is empty or the URL of a store.
    """
    (name,) = named
    path = place(**named)
    if is_url(path):
        raise ValueError(
            f"{name} must be a path on this machine, got {path!r}: mount it, or copy files there"
        )
    return path


def is_elsewhere(file: FileIO, path: Path) -> bool:
    """Return whether ``file``, opened at ``path``, was deleted or moved."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return True


def refuse_deleted(file: FileIO, path: Path) -> None:
    """Raise FileNotFoundError if ``file``, opened at ``path``, was deleted."""
    # The first look is cheap, but some file systems count no links at all.
    if not os.fstat(file.fileno()).st_nlink and is_elsewhere(file, path):
        reason = (
            "deleted while it was written: the writer's reopen() continues in a new file; a "
            "SummaryWriter of runhooks.tensorboard does so after close()"
        )
        raise FileNotFoundError(errno.ENOENT, reason, str(path))


_STAMPED = re.compile(r"events\.out\.tfevents\.(\d{10})\.")

_counter = itertools.count()


class EventFile:
    """A new event file in ``logdir``, which is created if it is missing.

    A file is never reused. Readers take the files of a directory in the order of their names, so
    the new name sorts after those that are there, even if these were made in the same second or by
    a clock that was ahead.

    Args:
        logdir: The directory.
        suffix: The end of the name.

    Raises:
        OSError: If the file cannot be created; it names the directory.
    """

    def __init__(self, logdir: str, suffix: str = "") -> None:
        now = clock.wall()
        try:
            directory = Path(logdir).absolute()
            directory.mkdir(parents=True, exist_ok=True)
            names = (path.name for path in directory.iterdir())
            stamp = max(int(now), newest_stamp(names) + 1)
            name = f"events.out.tfevents.{stamp:010d}.{platform.node()}.{os.getpid()}"
            self.path = directory / f"{name}.{next(_counter)}{suffix}"
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            add_note(error, f"logdir must be a writable directory, got {logdir!r}")
            raise
        self.size = 0  # bytes of complete records
        self.waiting = 0  # the system has whatever was written
        try:
            self.write(frame(Event(now, file_version=FILE_VERSION).SerializeToString()))
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def write(self, records: bytes | memoryview) -> None:
        """Hand ``records``, whole ones, to the operating system.

        Raises:
            OSError: If the file was deleted or cannot be written; it names the file. If the disk is
                full, the records that fit are in the file and counted in ``size``.
        """
        refuse_deleted(self._file, self.path)
        rest = memoryview(records)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # A truncated record would hide everything that is written after it.
            written = memoryview(records)[: len(records) - len(rest)]
            self.size += complete_records(written)[1]
            self._file.truncate(self.size)
            self._file.seek(self.size)
            error.filename = str(self.path)
            raise
        self.size += len(records)

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted or moved."""
        return self._file.closed or is_elsewhere(self._file, self.path)

    def store(self) -> None:
        """Do nothing: the system has whatever was written."""

    def forget(self) -> None:
        """Do nothing: no record waits."""

    def close(self) -> None:
        """Close the file; closing it twice is fine."""
        self._file.close()


def newest_stamp(names: Iterable[str]) -> int:
    """Return the latest time in the ``names`` of event files, in seconds since the epoch, or 0."""
    stamps = (_STAMPED.match(name) for name in names)
    return max((int(stamp[1]) for stamp in stamps if stamp), default=0)
