"""``QueuedWriter``: the base of the writers that write in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runhooks import clock
from runhooks.arrays.scalars import NUMBERS
from runhooks.events import Message, SessionStatus
from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.kinds.scalar import kept_number
from runhooks.summary.shared_file import StartMark
from runhooks.summary.summary_event import nbytes_of, session_log_event, summary_event
from runhooks.summary.summary_writer import SummaryWriter
from runhooks.summary.tag_and_step import checked_tag, step_snapshot


class QueuedWriter(SummaryWriter):
    """Writes through a ``WriteQueue``.

    Args:
        queue: The queue.
        start: Where its last ``START`` is kept, if other writers write through it too.
    """

    def __init__(self, queue: WriteQueue, start: StartMark | None = None) -> None:
        self._queue = queue
        self._put: Callable[[Any, Any, Any, float], None] = queue.put
        self._start = StartMark() if start is None else start

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._queue.closed

    @property
    def starts(self) -> int:
        """How many times it, or another writer of its file, has written that a session starts."""
        return self._start.count

    def scalar(self, tag: str, value: Any, step: int) -> None:
        # The common case costs next to nothing: a str, a float and an int above zero.
        if type(tag) is not str or not tag or type(step) is not int or step >> 63:
            step = step_snapshot(step, repr(checked_tag(tag)))
        self._start.step = None
        if type(value) is not float and type(value) not in NUMBERS:
            value = kept_number(tag, value)
        self._put(tag, value, step, clock.wall())

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._add(summary_event(summary, global_step), nbytes=nbytes_of(summary))

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add ``session_log``: our ``SessionLog``, or one of Protocol Buffers.

        A ``START`` is left out if the last one was at the same step, and nothing of that step or
        later has been added since.
        """
        event = session_log_event(session_log, global_step)
        start_step = event.step if session_log.status == SessionStatus.START else None
        if start_step is None:
            self._add(event)
        elif start_step != self._start.step:
            self._add(event)
            self._start.step = start_step
            self._start.count += 1

    def flush(self) -> None:
        self._queue.flush()

    def close(self) -> None:
        self._queue.close()

    def reopen(self) -> None:
        """Continue after it was closed or its file was deleted, in a new file if it has one."""
        if self._queue.reopen():
            self._start.step = None

    def _add(self, event: Any, nbytes: int = 0) -> None:
        self._queue.put_message(event, nbytes)
        if self._start.step is not None and event.step >= self._start.step:
            self._start.step = None
