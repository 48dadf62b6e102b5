"""``StoredFile``: an event file in an object store, which can neither append nor rename.

It is a row of objects, its segments. The last one is written anew, with all that it holds and
what is new, whenever there is something to store; so whoever has read it goes on where he was. Once
it is large, or was written often, the next segment begins, and the earlier ones are never touched
again. Each segment is an event file of its own, and readers that take the files of a directory in
the order of their names, as TensorBoard does, read them as one file.

A request whose answer is lost may still take effect, later than those that follow it. So a segment
that was hard to write is written again with the same content until that succeeds, and is complete
then: whatever arrives late changes nothing.
"""

from __future__ import annotations

import itertools
import os
import platform

from runhooks import clock
from runhooks.errors import add_note
from runhooks.events.format.event import FILE_VERSION, Event
from runhooks.events.format.record import complete_records, frame
from runhooks.events.writing.event_file import newest_stamp
from runhooks.stores import open_store

#: Bytes of a segment from which on it is complete.
SEGMENT_BYTES = 8 << 20

#: Bytes that are sent of a segment, the same ones many times, until it is complete all the same.
SENT_BYTES = 2 * SEGMENT_BYTES

#: Bytes of records that wait for a store that does not answer, before more of them are lost.
MOST_WAITING_BYTES = 64 << 20

_SLOW_SECS = 3.0  # a request that takes longer may have been sent twice

_counter = itertools.count()


class StoredFile:
    """A new event file in the folder of a store that has the URL ``logdir``.

    Args:
        logdir: The URL.
        suffix: The end of the names of its segments.

    Raises:
        OSError: If nothing can be written there; it names the URL.
        ImportError: If the library for such URLs is not installed.
    """

    def __init__(self, logdir: str, suffix: str = "") -> None:
        self.size = 0  # bytes of records that were taken
        self._suffix = suffix
        self._number = 0
        self._segment = b""  # what was written last, or is to be written again
        self._stored = 0  # bytes of it that are in the store
        self._sent = 0  # bytes, in all requests
        self._is_complete = True
        self._is_closed = False
        self._waiting = bytearray()  # the records after it
        self._store = open_store(logdir)
        try:
            names = (found.key for found in self._store.objects() if "/" not in found.key)
            stamp = max(int(clock.wall()), newest_stamp(names) + 1)
            writer = f"{platform.node()}.{os.getpid()}.{next(_counter)}"
            self._name = f"events.out.tfevents.{stamp:010d}.{writer}"
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

        Raises:
            OSError: If that fails. They are stored later with others, unless too many wait
                already; ``size`` counts those that were taken.
        """
        if self._waiting and len(self._waiting) + len(records) > MOST_WAITING_BYTES:
            self.store()
        self._waiting += records
        self.size += len(records)
        before = 0 if self._is_complete else len(self._segment)
        if before + len(self._waiting) >= SEGMENT_BYTES:
            self.store()

    def store(self) -> None:
        """Return when all that was taken is in the store.

        Raises:
            OSError: If the store fails. The next call tries again.
        """
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
        self._segment = frame(Event(clock.wall(), file_version=FILE_VERSION).SerializeToString())
        self._stored = self._sent = 0
        self._is_complete = False

    def forget(self) -> None:
        """Leave out the records that wait."""
        self._waiting.clear()
        self._segment = self._segment[: self._stored]
        self._is_complete = True  # what was sent of it may still arrive

    def close(self) -> None:
        """Take no more records; those that wait are lost."""
        self._is_closed = True

    def _put(self) -> None:
        begun = clock.monotonic()
        self._sent += len(self._segment)
        self._store.put(f"{self._name}.{self._number:05d}{self._suffix}", self._segment)
        self._stored = len(self._segment)
        was_slow = clock.monotonic() - begun > _SLOW_SECS
        is_large = len(self._segment) >= SEGMENT_BYTES or self._sent >= SENT_BYTES
        self._is_complete = was_slow or is_large
