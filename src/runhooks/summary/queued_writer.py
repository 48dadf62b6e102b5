"""``QueuedWriter``: the base of the writers that write in the background, sharing a file.

TensorBoard and ``events.read`` read the files of a directory one after the other, and a ``START``
drops what was read before it of later steps. With a file each, the ``START`` of one writer would
hide what another one writes beside it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from runhooks import clock
from runhooks.arrays.values import NUMBERS
from runhooks.events import EventWriter, Message, OnFull, SessionStatus
from runhooks.events.place import identity
from runhooks.events.writing.background import LINGER_SECS
from runhooks.events.writing.write_queue import MAX_QUEUE, WriteQueue
from runhooks.summary.kinds.scalar import kept_number
from runhooks.summary.message import (
    checked_tag,
    nbytes_of,
    session_log_event,
    step_snapshot,
    summary_event,
)
from runhooks.summary.summary_writer import SummaryWriter


class FileOptions(NamedTuple):
    """How a writer wants its file to be written, as ``EventWriter`` takes it."""

    max_queue: int = MAX_QUEUE
    flush_secs: float = 120
    filename_suffix: str = ""
    on_full: OnFull = "wait"

    @property
    def are_default(self) -> bool:
        """Whether any file will do."""
        return self._replace(flush_secs=120) == FileOptions() and self.flush_secs >= LINGER_SECS


class FileState:
    """What is in a file already, and need not be written again.

    Attributes:
        start: The step of a ``START`` that nothing of that step or later came after; None if none.
        starts: How many were written.
        graphs: The graphs that are in the file.
    """

    __slots__ = ("graphs", "start", "starts")

    def __init__(self) -> None:
        self.starts = 0
        self.begin()

    def begin(self) -> None:
        """Note that a new file begins."""
        self.start: int | None = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()


class SharedFile:
    """An event file and the writers that have it open. Any thread may use it."""

    _lock: ClassVar = threading.RLock()
    _by_directory: ClassVar[weakref.WeakValueDictionary[str, SharedFile]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, events: EventWriter) -> None:
        self.events = events
        self.state = FileState()
        self._writers: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def join(
        cls, writer: Any, logdir: str, options: FileOptions, make: Callable[[], EventWriter]
    ) -> SharedFile:
        """Return the file in ``logdir`` that ``writer`` is to write to, until it leaves it.

        That is the one which others have open, if ``options`` are the default; else a new one,
        which ``make`` makes. Raises what that does.
        """
        directory = identity(logdir)
        with cls._lock:
            file = cls._by_directory.get(directory)
            if file is None or not options.are_default:
                file = cls(make())
                cls._by_directory.setdefault(directory, file)
            else:
                file.reopen()
                file.events.hasten(options.flush_secs)
            file._writers.add(writer)
            return file

    def leave(self, writer: Any) -> None:
        """Flush; close the file if no other writer has it open.

        Raises what went wrong in the background; ``writer`` has left nevertheless.
        """
        with self._lock:
            self._writers.discard(writer)
            is_last = not self._writers
            if is_last:
                for directory, file in list(self._by_directory.items()):
                    if file is self:
                        del self._by_directory[directory]
        if is_last:
            self.events.close()
        else:
            self.events.flush()

    def reopen(self) -> None:
        """Continue in a new file if this one was deleted."""
        if self.events.reopen():
            self.state.begin()

    @classmethod
    def forked(cls) -> None:
        """Forget the lock: somebody may have held it in the parent when the process was forked."""
        cls._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SharedFile.forked)


class QueuedWriter(SummaryWriter):
    """Writes through a ``WriteQueue``.

    Args:
        queue: The queue.
        state: What is in its file, if other writers write through it too.
    """

    def __init__(self, queue: WriteQueue, state: FileState | None = None) -> None:
        self._queue = queue
        self._put: Callable[[Any, Any, Any, float], object] = queue.put
        self._state = FileState() if state is None else state

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._queue.closed

    @property
    def starts(self) -> int:
        """How many times it, or another writer of its file, has written that a session starts."""
        return self._state.starts

    def scalar(self, tag: str, value: Any, step: int) -> None:
        # The common case costs next to nothing: a str, a float and an int above zero.
        if type(tag) is not str or not tag or type(step) is not int or step >> 63:
            step = step_snapshot(step, repr(checked_tag(tag)))
        self._state.start = None
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
        if session_log.status != SessionStatus.START:
            self._add(event)
        elif event.step != self._state.start and self._add(event):
            self._state.start = event.step
            self._state.starts += 1

    def flush(self) -> None:
        self._queue.flush()

    def close(self) -> None:
        self._queue.close()

    def reopen(self) -> None:
        """Continue after it was closed or its file was deleted, in a new file if it has one."""
        if self._queue.reopen():
            self._state.begin()

    def _add(self, event: Any, nbytes: int = 0) -> bool:
        """Add ``event``; return whether it was, and not dropped."""
        is_added = self._queue.put_message(event, nbytes)
        if self._state.start is not None and event.step >= self._state.start:
            self._state.start = None
        return is_added
