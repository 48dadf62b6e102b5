"""New event files, which only ever contain whole records: on a disk, and in an object store."""

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
from runhooks.events.format.record import FILE_VERSION, Event, complete_records, frame
from runhooks.events.place import place
from runhooks.stores import is_url, open_store


def local_path(**named: Any) -> str:
    """Return the path that is the one argument, as ``place``; raise ValueError for a URL."""
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


def _new_name(names: Iterable[str]) -> str:
    """Return a name that sorts after ``names``, which a clock that was ahead may have made."""
    stamps = (_STAMPED.match(name) for name in names)
    newest = max((int(stamp[1]) for stamp in stamps if stamp), default=0)
    stamp = max(int(clock.wall()), newest + 1)
    return f"events.out.tfevents.{stamp:010d}.{platform.node()}.{os.getpid()}.{next(_counter)}"


def _first_record() -> bytes:
    return frame(Event(clock.wall(), file_version=FILE_VERSION).SerializeToString())


class EventFile:
    """A new event file in ``logdir``, which is created if missing.

    Raises OSError, which names ``logdir``.
    """

    waiting = 0

    def __init__(self, logdir: str, suffix: str = "") -> None:
        try:
            directory = Path(logdir).absolute()
            directory.mkdir(parents=True, exist_ok=True)
            name = _new_name(path.name for path in directory.iterdir())
            self.path = directory / f"{name}{suffix}"
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            add_note(error, f"logdir must be a writable directory, got {logdir!r}")
            raise
        self.size = 0
        try:
            self.write(_first_record())
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def write(self, records: bytes | memoryview) -> None:
        """Hand ``records``, whole ones, to the operating system.

        Raises OSError, which names the file. If the disk is full, the records that fit are in the
        file and counted in ``size``.
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
        return self._file.closed or is_elsewhere(self._file, self.path)

    def store(self) -> None:
        """Do nothing: no record waits."""

    def forget(self) -> None:
        """Likewise."""

    def close(self) -> None:
        self._file.close()


#: Bytes of a segment from which on it is complete.
SEGMENT_BYTES = 8 << 20

#: Bytes that may wait for a store that does not answer.
MOST_WAITING_BYTES = 64 << 20

_SENT_BYTES = 2 * SEGMENT_BYTES  # of one segment, written many times, until it is complete
_SLOW_SECS = 3.0  # a request that takes longer may have been sent twice


class StoredFile:
    """A new event file in the folder ``logdir`` of a store, which can neither append nor rename.

    It is a row of objects, its segments. The last one is written anew, with what is new at its end,
    until it is large or was sent often: then the next one begins. Each is an event file, and
    readers that take the files of a directory in the order of their names read them as one.

    A request whose answer is lost may take effect later than those that follow it. So a segment
    that was hard to write is written again with the same content, and is complete then.

    Raises OSError, which names the URL, or ImportError without the library for such URLs.
    """

    def __init__(self, logdir: str, suffix: str = "") -> None:
        self.size = 0
        self._suffix = suffix
        self._number = 0
        self._segment = b""  # what was written last, or is to be written again
        self._stored = 0
        self._sent = 0
        self._is_complete = True
        self._is_closed = False
        self._waiting = bytearray()  # the records after it
        self._store = open_store(logdir)
        try:
            names = (found.key for found in self._store.objects() if "/" not in found.key)
            self._name = _new_name(names)
            self._begin_segment()
            self._put()
        except OSError as error:
            add_note(error, f"logdir must be a place that can be written to, got {logdir!r}")
            raise

    @property
    def is_gone(self) -> bool:
        """Whether it was closed. Who deletes a segment does not stop the next."""
        return self._is_closed

    @property
    def waiting(self) -> int:
        """Number of records that are not in the store yet."""
        unstored = memoryview(self._segment)[self._stored :]
        return complete_records(unstored)[0] + complete_records(self._waiting)[0]

    def write(self, records: bytes | memoryview) -> None:
        """Take ``records``, whole ones, and store them once they fill a segment.

        Raises OSError if that fails. They are stored later, unless too many wait already; ``size``
        counts those that were taken.
        """
        if self._waiting and len(self._waiting) + len(records) > MOST_WAITING_BYTES:
            self.store()
        self._waiting += records
        self.size += len(records)
        before = 0 if self._is_complete else len(self._segment)
        if before + len(self._waiting) >= SEGMENT_BYTES:
            self.store()

    def store(self) -> None:
        """Store all that was taken. Raises OSError; the next call tries again."""
        if self._stored < len(self._segment):
            self._put()
            self._is_complete = True
        if self._waiting:
            if self._is_complete:
                self._number += 1
                self._begin_segment()
            self._segment += bytes(self._waiting)
            self._waiting.clear()
            self._put()

    def _begin_segment(self) -> None:
        self._segment = _first_record()
        self._stored = self._sent = 0
        self._is_complete = False

    def forget(self) -> None:
        self._waiting.clear()
        self._segment = self._segment[: self._stored]
        self._is_complete = True  # what was sent may still arrive

    def close(self) -> None:
        self._is_closed = True

    def _put(self) -> None:
        begun = clock.monotonic()
        self._sent += len(self._segment)
        self._store.put(f"{self._name}.{self._number:05d}{self._suffix}", self._segment)
        self._stored = len(self._segment)
        was_slow = clock.monotonic() - begun > _SLOW_SECS
        is_large = len(self._segment) >= SEGMENT_BYTES or self._sent >= _SENT_BYTES
        self._is_complete = was_slow or is_large
