"""``PointWriter``: the base of all writers that have a ``PointSink`` to write to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks import clock
from runhooks.events import Message, SessionStatus
from runhooks.events.write_queue import WriteQueue
from runhooks.summary.address import checked_tag, step_now
from runhooks.summary.kinds.scalar import number_now, numbers_now
from runhooks.summary.summary_event import nbytes_of, session_log_event, summary_event
from runhooks.summary.summary_writer import SummaryWriter


class PointWriter(SummaryWriter):
    """Writes through ``queue``, that of a ``PointSink``.

    Scalars keep the precision in which they are given.
    """

    def __init__(self, queue: WriteQueue) -> None:
        self._queue = queue
        self._start_step: int | None = None  # of what was added last, if it is a START

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._queue.closed

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Write one number, ``value``: a Python number or an array of size 1."""
        at = step_now(step, repr(checked_tag(tag)))
        self._queue.put(tag, number_now(tag, value), at, clock.wall())
        self._start_step = None

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        numbers = numbers_now(values)
        at = step_now(step, list(numbers))
        for tag, number in numbers.items():
            self.scalar(tag, number, at)

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._start_step = None
        self._queue.put_message(summary_event(summary, global_step), nbytes_of(summary))

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add ``session_log``; a START that repeats the one added just before is left out."""
        event = session_log_event(session_log, global_step)
        start_step = event.step if session_log.status == SessionStatus.START else None
        if start_step is None or start_step != self._start_step:
            self._queue.put_message(event)
        self._start_step = start_step

    def flush(self) -> None:
        self._queue.flush()

    def close(self) -> None:
        self._queue.close()

    def reopen(self) -> None:
        """Go on after it was closed, or its file was deleted; else nothing happens."""
        if self._queue.reopen():
            self._start_step = None
