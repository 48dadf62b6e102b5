"""``EventSink``: where the queue of an ``EventWriter`` is written to, an event file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runhooks.events.event_file import EventFile
from runhooks.events.record import frame
from runhooks.events.scalar_records import ScalarRecords, scalars_record
from runhooks.events.write_queue import MESSAGE, Batch

_WRITE_BYTES = 1 << 20
_AT_ONCE = 1 << 13  # scalars: what is made of them stays in the cache
_FEW = 32  # scalars, which are encoded sooner one by one


class EventSink:
    """Writes batches to an event file in ``logdir``, made when it is first needed or opened.

    In a batch, a message is an event; a scalar whose tag is a tuple, its value being one as well,
    is several in one event.
    """

    def __init__(self, logdir: str, suffix: str) -> None:
        self._logdir = logdir
        self._suffix = suffix
        self._file: EventFile | None = None
        self._scalars = ScalarRecords()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._records: list[bytes] = []  # to be written
        self._size = 0  # bytes in them
        self._errors: list[BaseException] = []

    @property
    def name(self) -> str:
        return f"the event writer of {self._logdir!r}"

    @property
    def is_gone(self) -> bool:
        return self._file is not None and self._file.is_gone

    def open(self) -> None:
        before, self._file = self._file, EventFile(self._logdir, self._suffix)
        if before is not None:
            before.close()

    def close(self) -> None:
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
            except Exception:  # noqa: BLE001 (which of them it is comes out one by one)
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
        except BaseException as error:  # noqa: BLE001 (the caller gets it; no one may hang)
            if type(tag) is tuple and len(tag) > 1:  # which of them it is comes out one by one
                for one in zip(tag, value, strict=True):
                    self._add_one(*one, step, wall_time)
                return
            error.add_note(
                f"while encoding an event of step {step} "
                f"for the event file in {self._logdir!r}; the event is lost"
            )
            self._errors.append(error)
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
        try:
            if self._file is None:
                self._file = EventFile(self._logdir, self._suffix)
            self._file.write(records)
        except BaseException as error:  # noqa: BLE001 (likewise)
            error.add_note(f"{count} events for {self._logdir!r} are lost")
            self._errors.append(error)


def _runs(tags: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield where each run of scalars begins and ends; anything else is one by itself."""
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
        return all(type(tag) is str for tag in set(tags))  # few different ones
    except TypeError:  # one that cannot be hashed
        return False
