"""``EventSink``: the event file to which a queue is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from runhooks.errors import add_note
from runhooks.events.format.record import complete_records, frame
from runhooks.events.writing.scalar_records import ScalarRecords, scalars_record
from runhooks.events.writing.write_queue import MESSAGE, Batch

_WRITE_BYTES = 1 << 20
_AT_ONCE = 1 << 13  # scalars encoded at once: the arrays stay in the cache
_FEW = 32  # scalars: so few are encoded faster one by one


class WritableFile(Protocol):
    """An event file that is written: on a disk or in a store."""

    @property
    def size(self) -> int:
        """Number of bytes of records that it has taken."""

    @property
    def is_gone(self) -> bool:
        """Whether it was closed or deleted."""

    @property
    def waiting(self) -> int:
        """Number of records that it has taken and that a killed process would lose."""

    def write(self, records: bytes | memoryview) -> None:
        """Take ``records``, whole ones. Raises OSError; ``size`` tells which were taken."""

    def store(self) -> None:
        """Return when none is waiting. Raises OSError."""

    def forget(self) -> None:
        """Leave out the records that wait."""

    def close(self) -> None:
        """Close it; closing it twice is fine."""


class EventSink:
    """Writes batches to an event file in ``logdir``, made when it is first needed or opened.

    A message in a batch is an event. An item whose tag and value are tuples is one event with
    several scalars.
    """

    def __init__(self, logdir: str, make: Callable[[], WritableFile]) -> None:
        self._logdir = logdir
        self._make = make
        self._file: WritableFile | None = None
        self._scalars = ScalarRecords()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._records: list[bytes] = []  # to be written
        self._size = 0  # bytes in them
        self._errors: list[BaseException] = []
        self.lost = 0
        #: Number of records that waited when the last error came; the next try may write them.
        self.waiting = 0

    @property
    def name(self) -> str:
        return f"the event writer of {self._logdir!r}"

    @property
    def is_gone(self) -> bool:
        return self._file is not None and self._file.is_gone

    def open(self) -> None:
        before, self._file = self._file, self._make()
        if before is not None:
            before.close()

    @property
    def is_waiting(self) -> bool:
        """Whether records that were written would be lost if the process was killed."""
        return self._file is not None and self._file.waiting > 0

    def store(self) -> list[BaseException]:
        """Return when none of them would be; return the error if that fails."""
        try:
            if self._file is not None:
                self._file.store()
        except Exception as error:  # noqa: BLE001 (raised by the next call)
            self.waiting = self._file.waiting if self._file is not None else 0
            return [error]
        return []

    def give_up(self) -> None:
        """Count the records that wait as lost: there is no next try."""
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
            self._add(record)

    def _add(self, record: bytes) -> None:
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
    """Yield where each stretch of single scalars begins and ends; any other item is its own."""
    begin = 0
    for at in (
        [] if _are_texts(tags) else [at for at, tag in enumerate(tags) if type(tag) is not str]
    ):
        if begin < at:
            yield begin, at
        yield at, at + 1
        begin = at + 1
    if begin < len(tags):
        yield begin, len(tags)


def _are_texts(tags: list[Any]) -> bool:
    try:
        return all(type(tag) is str for tag in set(tags))  # few distinct ones
    except TypeError:  # an unhashable one
        return False
