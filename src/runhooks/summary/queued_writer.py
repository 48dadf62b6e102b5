"""``QueuedWriter``: the base of all writers that have a ``WriteQueue`` to write through."""

from __future__ import annotations

from typing import Any

from runhooks import clock
from runhooks.events import Message, SessionStatus
from runhooks.events.scalar_values import NUMBERS
from runhooks.events.write_queue import WriteQueue
from runhooks.summary.address import checked_tag, step_now
from runhooks.summary.kinds.scalar import number_now
from runhooks.summary.summary_event import nbytes_of, session_log_event, summary_event
from runhooks.summary.summary_writer import SummaryWriter


class QueuedWriter(SummaryWriter):
    """Writes through ``queue``, in the background."""

    def __init__(self, queue: WriteQueue) -> None:
        self._queue = queue
        self._put = queue.put
        self._start_step: int | None = (
            None  # of a START, if nothing came after it of that step or later
        )

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._queue.closed

    def scalar(self, tag: str, value: Any, step: int) -> None:
        # Cheap for what nearly all are: a str, a float and an int above zero.
        if type(tag) is not str or not tag or type(step) is not int or step >> 63:
            step = step_now(step, repr(checked_tag(tag)))
        self._start_step = None
        if type(value) is not float and type(value) not in NUMBERS:
            value = number_now(tag, value)
        self._put(tag, value, step, clock.wall())

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._add(summary_event(summary, global_step), nbytes=nbytes_of(summary))

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add ``session_log``: a ``SessionLog``, of ours or of Protocol Buffers.

        A START that repeats one at the same step, since when nothing of that step or later was
        added, is left out.
        """
        event = session_log_event(session_log, global_step)
        start_step = event.step if session_log.status == SessionStatus.START else None
        if start_step is None or start_step != self._start_step:
            self._add(event)
            self._start_step = self._start_step if start_step is None else start_step

    def flush(self) -> None:
        self._queue.flush()

    def close(self) -> None:
        self._queue.close()

    def reopen(self) -> None:
        """Go on, in a new file if it writes one, after it was closed or its file was deleted."""
        if self._queue.reopen():
            self._start_step = None

    def _add(self, event: Any, nbytes: int = 0) -> None:
        self._queue.put_message(event, nbytes)
        if self._start_step is not None and event.step >= self._start_step:
            self._start_step = None
