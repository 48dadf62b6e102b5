"""Event files on a disk and in a store, and what writes a queue to them."""

from __future__ import annotations

import itertools
import os
import platform
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from runhooks import clock
from runhooks.errors import add_note
from runhooks.events.format.event import FILE_VERSION, Event
from runhooks.events.format.record import complete_records, frame
from runhooks.events.place import is_elsewhere, refuse_deleted
from runhooks.events.writing import background
from runhooks.events.writing.scalar_records import ScalarRecords, scalars_record
from runhooks.events.writing.write_queue import MESSAGE, Batch, OnFull, RemoteQueue, Sink
from runhooks.stores import is_url, open_store
from runhooks.stores.interruption import interrupting

_STAMPED = re.compile(r"events\.out\.tfevents\.(\d{10})\.")

_counter = itertools.count()


def _new_name(names: Iterable[str]) -> str:
    """Return a name that sorts after ``names``, even if their clock was ahead."""
    stamps = (_STAMPED.match(name) for name in names)
    newest = max((int(stamp[1]) for stamp in stamps if stamp), default=0)
    stamp = max(int(clock.wall()), newest + 1)
    return f"events.out.tfevents.{stamp:010d}.{platform.node()}.{os.getpid()}.{next(_counter)}"


def _first_record() -> bytes:
    return frame(Event(clock.wall(), file_version=FILE_VERSION).SerializeToString())


class EventFile:
    """A new event file in ``logdir``, which is made if missing. OSErrors name it."""

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
        """Hand whole ``records`` to the operating system.

        If the disk is full, those that fit are in the file and counted in ``size``.
        """
        refuse_deleted(self._file, self.path)
        rest = memoryview(records)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # A truncated record would hide what follows.
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
        return

    def forget(self) -> None:
        return

    def close(self) -> None:
        self._file.close()


#: A segment is complete from this size on.
SEGMENT_BYTES = 8 << 20

MOST_WAITING_BYTES = 64 << 20  # while the store does not answer

_SENT_BYTES = 2 * SEGMENT_BYTES  # of one segment, written many times, until it is complete
_SLOW_SECS = 3.0  # a request that takes longer may have been sent twice


class StoredFile:
    """A new event file in ``logdir``, in a store, as segments: see ``docs/object-stores.md``.

    A request whose answer is lost may take effect after those that follow it. So a segment that was
    hard to write is written again with the same content, and is complete then.

    OSErrors name the URL. Raises ImportError without the library for such URLs.
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
        unstored = memoryview(self._segment)[self._stored :]
        return complete_records(unstored)[0] + complete_records(self._waiting)[0]

    def write(self, records: bytes | memoryview) -> None:
        """Take whole ``records``, and store them once they fill a segment.

        Raises OSError if that fails: they are stored later, unless too many wait already.
        """
        if self._waiting and len(self._waiting) + len(records) > MOST_WAITING_BYTES:
            self.store()
        self._waiting += records
        self.size += len(records)
        before = 0 if self._is_complete else len(self._segment)
        if before + len(self._waiting) >= SEGMENT_BYTES:
            self.store()

    def store(self) -> None:
        """Store all that was taken. The next call tries again."""
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


_WRITE_BYTES = 1 << 20
_AT_ONCE = 1 << 13  # scalars encoded at once: the arrays stay in the cache
_FEW = 32  # scalars: so few are encoded faster one by one


class EventSink(Sink):
    """Writes batches to an event file in ``logdir``, made when it is first needed.

    A message is an event. An item whose tag and value are tuples is one event of several scalars.
    """

    def __init__(self, logdir: str, suffix: str = "") -> None:
        self.name = f"the event writer of {logdir!r}"
        self._logdir = logdir
        self._suffix = suffix
        self._file: EventFile | StoredFile | None = None
        self._scalars = ScalarRecords()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._records: list[bytes] = []
        self._size = 0
        self._errors: list[BaseException] = []
        self.lost = 0
        #: Records that waited when the last error came.
        self.waiting = 0

    @property
    def is_gone(self) -> bool:
        return self._file is not None and self._file.is_gone

    def open(self) -> None:
        before, self._file = self._file, self._make()
        if before is not None:
            before.close()

    def _make(self) -> EventFile | StoredFile:
        kind = StoredFile if is_url(self._logdir) else EventFile
        return kind(self._logdir, self._suffix)

    @property
    def is_waiting(self) -> bool:
        """Whether a killed process would lose records that were written."""
        return self._file is not None and self._file.waiting > 0

    def store(self) -> list[BaseException]:
        if self._file is not None:
            try:
                self._file.store()
            except Exception as error:  # noqa: BLE001 (raised by the next call)
                self.waiting = self._file.waiting
                return [error]
        return []

    def give_up(self) -> None:
        if self._file is not None:
            self.lost += self._file.waiting
            self._file.forget()
        self.waiting = 0

    def close(self) -> None:
        self.give_up()
        if self._file is not None:
            self._file.close()

    def forked(self) -> None:
        self.close()
        self._file = None
        self._start_afresh()

    def write(self, batch: Batch) -> list[BaseException]:
        for begin, end in _runs(batch.tags):
            for at in range(begin, end, _AT_ONCE):
                self._add_some(Batch(*(column[at : min(at + _AT_ONCE, end)] for column in batch)))
        self._write()
        errors, self._errors = self._errors, []
        return errors

    def _add_some(self, run: Batch) -> None:
        records: bytes | memoryview
        if len(run.tags) > _FEW:
            try:
                records = self._scalars.encode(*run)
            except Exception:  # noqa: BLE001 (encoding one by one tells which of them is at fault)
                pass
            else:
                self._write()
                self._write_records(records, len(run.tags))
                return
        for item in zip(*run, strict=True):
            self._add_one(*item)

    def _add_one(self, tag: Any, value: Any, step: Any, wall_time: float) -> None:
        try:
            if tag is MESSAGE:
                step = getattr(value, "step", None)
                record = frame(value.SerializeToString())
            elif type(tag) is tuple:
                record = scalars_record(tag, value, step, wall_time)
            else:
                record = scalars_record((tag,), (value,), step, wall_time)
        except BaseException as error:  # noqa: BLE001 (raised by the next call; no waiter may hang)
            if type(tag) is tuple and len(tag) > 1:  # one by one, so that only one is lost
                for one in zip(tag, value, strict=True):
                    self._add_one(*one, step, wall_time)
                return
            add_note(
                error,
                f"while encoding an event of step {step} for the event file in {self._logdir!r}",
            )
            self._errors.append(error)
            self.lost += 1
        else:
            self._records.append(record)
            self._size += len(record)
            if self._size >= _WRITE_BYTES:
                self._write()

    def _write(self) -> None:
        if self._records:
            records, self._records, self._size = self._records, [], 0
            self._write_records(b"".join(records), len(records))

    def _write_records(self, records: bytes | memoryview, count: int) -> None:
        written = size = 0
        try:
            if self._file is None:
                self._file = self._make()
            size = self._file.size
            self._file.write(records)
        except BaseException as error:  # noqa: BLE001 (likewise)
            if self._file is not None:
                written, _ = complete_records(memoryview(records)[: self._file.size - size])
                self.waiting = self._file.waiting
            self._errors.append(error)
            self.lost += count - written


def _runs(tags: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each stretch of single scalars; any other item is its own."""
    begin = 0
    try:
        are_texts = all(type(tag) is str for tag in set(tags))
    except TypeError:
        are_texts = False
    for at in () if are_texts else [at for at, tag in enumerate(tags) if type(tag) is not str]:
        yield begin, at
        yield at, at + 1
        begin = at + 1
    yield begin, len(tags)


class StoreQueue(RemoteQueue):
    """A ``RemoteQueue`` whose items are in the store ``flush_secs`` after they were added."""

    def __init__(self, sink: EventSink, max_queue: int, flush_secs: float, on_full: OnFull) -> None:
        self._events = sink
        self._flush_secs = flush_secs
        self._timer: threading.Timer | None = None
        super().__init__(sink, max_queue, flush_secs, on_full)

    def hasten(self, flush_secs: float) -> None:
        if flush_secs < self._flush_secs:
            self._flush_secs = flush_secs
            self._stop_timer()
            background.schedule(self)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._stop_timer()

    def forked(self) -> None:
        self._timer = None
        super().forked()

    def _wait_for_all(self, timeout: float | None = None) -> None:
        with interrupting():
            super()._wait_for_all(timeout)

    def _give_up(self) -> None:
        with self._writing:
            self._events.give_up()

    def _raise_error(self) -> None:
        try:
            super()._raise_error()
        except Exception as error:
            if self._events.waiting and not self.closed:
                count = self._events.waiting
                add_note(error, f"{count} events wait to be written there; flush() tries again")
            raise

    def _settle(self) -> None:
        self._take_errors(self._events.store())

    def _write_all(self) -> None:
        super()._write_all()
        # After an error somebody has to know of it first, or it would be tried for ever.
        if self._timer is None and self._events.is_waiting and not self._errors:
            wait = max(0.0, self._flush_secs - background.LINGER_SECS)
            self._timer = threading.Timer(wait, self._store_now)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None
                self._settle()

    def _store_now(self) -> None:
        self._timer = None
        self._waiters.append(SimpleQueue())  # as flush() does, which then waits
        background.schedule(self, hurry=True)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
