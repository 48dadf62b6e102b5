"""``WriteQueue``: items waiting for the background thread.

All items lie flat in one list, four slots an item: adding one allocates nothing for the garbage
collector, and columns are slices. Extending the list and cutting off its beginning are atomic, so
there is no lock, and a signal handler may interrupt any line.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal, NamedTuple, get_args

from runhooks import arguments
from runhooks.errors import DeadlineExceededError, add_note, add_to_message, described, error_text
from runhooks.events.writing import background

#: If the queue is full: wait until it is written, raise ``queue.Full``, or drop and count the item.
OnFull = Literal["wait", "raise", "drop"]

MAX_QUEUE = 500_000  # so many scalars take 56 MB

MAX_WAITING_BYTES = 256 << 20

MESSAGE: Final = object()  # as a tag: the value is a message

_WIDTH = len(("tag", "value", "step", "wall_time"))
_BATCH = 1 << 15  # items: no call holds the interpreter for a millisecond
_LARGE = 1 << 14  # bytes: sizes of larger messages are added up
_REST_SECS = 5.0  # for the rest of the queue, before an error is raised
_LOOK_SECS = 1.0  # between checks that the background thread is alive

_log = logging.getLogger("runhooks")


class Batch(NamedTuple):
    """Items by column. A message has the tag ``MESSAGE``; its step and time have no meaning."""

    tags: list[Any]
    values: list[Any]
    steps: list[Any]
    wall_times: list[Any]


class Sink(ABC):
    """The destination of a queue. One thread at a time calls it."""

    name: str  # in errors
    lost = 0  # items, where the errors do not say so themselves

    @property
    def is_gone(self) -> bool:
        return False

    @abstractmethod
    def write(self, batch: Batch) -> list[BaseException]:
        """Write ``batch`` in order and return the errors. The items at fault are lost."""

    def open(self) -> None:
        """Continue after it was closed, in a new place if the old one is gone."""
        return

    def close(self) -> None:
        return

    def forked(self) -> None:
        """Leave it to the parent process."""
        return


class WriteQueue:
    """Items to be written to ``sink`` in the background: a ``Worker``.

    An error is raised, once, by the next call that adds, flushes or closes, or logged when there
    can be none. Any thread or signal handler may call any method.
    """

    def __init__(
        self,
        sink: Sink,
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        on_full: OnFull = "wait",
    ) -> None:
        self._errors: deque[BaseException] = deque()  # first, for __del__
        arguments.given(max_queue=max_queue, flush_secs=flush_secs)
        arguments.whole(max_queue=max_queue)
        arguments.positive(flush_secs=flush_secs)
        if on_full not in get_args(OnFull):
            raise ValueError(f"on_full must be one of {get_args(OnFull)}, got {on_full!r}")
        self._sink = sink
        self._limit = max_queue * _WIDTH
        self._on_full = on_full
        self._hurry = flush_secs < background.LINGER_SECS
        self._closed = False
        self._start_afresh()
        background.register(self)
        background.guard(self)

    def _start_afresh(self) -> None:
        self._items: list[Any] = []
        self._sizes: list[int] = []
        self.dropped = 0
        self._counting = threading.RLock()
        self._idle = True
        # Queues, not events: a signal handler may interrupt a thread in wait() and wait as well.
        self._waiters: deque[SimpleQueue[None]] = deque()
        self._errors = deque()
        self._lost = 0
        self._reported = 0
        self._writing = threading.RLock()
        self._writer: int | None = None
        self._set_mark()

    def _set_mark(self) -> None:
        # `put` calls `_admits` from this length on. The limit first: it would replace the 0 of
        # another thread.
        self._mark = self._limit
        if self._closed or self._errors:
            self._mark = 0

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, tag: Any, value: Any, step: Any, wall_time: float) -> bool:
        """Add one item of a ``Batch``; return False if it is dropped.

        If this raises, it is not written. One that another thread adds during ``close`` may be
        lost; the next call then raises.
        """
        items = self._items
        if len(items) >= self._mark and not self._admits():
            return False
        items.extend((tag, value, step, wall_time))
        if self._idle:
            self._wake()
        return True

    def put_message(self, message: Any, nbytes: int = 0) -> bool:
        """Add ``message``, with ``nbytes`` bytes of arrays in it, as ``put`` does."""
        if nbytes < _LARGE:
            return self.put(MESSAGE, message, False, 0.0)
        if not self._admits(nbytes):
            return False
        self._sizes.append(nbytes)
        self._items.extend((MESSAGE, message, True, 0.0))
        if self._idle:
            self._wake()
        return True

    def hasten(self, flush_secs: float) -> None:
        """Have items written after ``flush_secs`` at the latest."""

    def flush(self, timeout: float | None = None) -> None:
        """Return when the operating system, or the store, has all items added before.

        Raises DeadlineExceededError after ``timeout`` seconds.
        """
        if not self._closed:
            self._wait_for_all(timeout)
            self._raise_error()

    def settle(self) -> None:
        if not self._closed:
            self._wait_for_all()

    def finish(self, timeout: float | None = None) -> None:
        if not self._closed:
            self._wait_for_all(timeout)
            self._give_up()
            self._raise_error()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._set_mark()
        self._wait_for_all()
        with self._writing:
            self._sink.close()
        background.release(self)
        self._raise_error()

    def reopen(self) -> bool:
        """Continue in a new place if it is closed or the place is gone; return whether it was.

        What was lost in the old place is logged. Raises OSError.
        """
        if not self._closed and not self._sink.is_gone:
            return False
        with self._writing:
            self._sink.open()
            self._log_errors(f"before {self._sink.name} was reopened")
        self._closed = False
        self._set_mark()
        background.guard(self)
        return True

    def work(self) -> None:
        if self._writer == threading.get_ident():
            return
        with self._writing:
            self._writer = threading.get_ident()
            try:
                self._write_all()
            finally:
                self._writer = None

    def forked(self) -> None:
        self._sink.forked()
        self._start_afresh()

    def _write_all(self) -> None:
        # First: an item that is added after the last look then schedules a write again.
        self._idle = True
        while self._items or self._waiters:
            waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
            end = len(self._items)
            while end > 0:
                end -= self._write_batch(min(end, _BATCH * _WIDTH))
            if waiters:
                self._settle()
            for waiter in waiters:
                waiter.put(None)

    def _write_batch(self, end: int) -> int:
        batch = Batch(*(self._items[slot:end:_WIDTH] for slot in range(_WIDTH)))
        try:
            errors = self._sink.write(batch)
        except BaseException as error:  # noqa: BLE001 (raised by the next call; no waiter may hang)
            errors = [error]
            self._lost += len(batch.tags)
        # Only now: items that are being written count as waiting.
        del self._items[:end]
        if self._sizes:
            large = sum(s for tag, s in zip(batch.tags, batch.steps, strict=True) if tag is MESSAGE)
            del self._sizes[:large]
        self._take_errors(errors)
        return end

    def _settle(self) -> None:
        """Make sure that a killed process loses nothing."""

    def _give_up(self) -> None:
        """Count as lost what waits for another try."""

    def _take_errors(self, errors: list[BaseException]) -> None:
        self._errors.extend(errors)
        self._set_mark()

    def _wake(self) -> None:
        self._idle = False
        background.schedule(self, self._hurry)

    def _admits(self, nbytes: int = 0) -> bool:
        if self._errors:  # so that one error reports everything that was added before
            with suppress(DeadlineExceededError):
                self._wait_for_all(_REST_SECS)
        self._refuse()
        self._set_mark()
        waiting = sum(self._sizes)
        has_bytes = not waiting or waiting + nbytes <= MAX_WAITING_BYTES
        if len(self._items) < self._limit and has_bytes:
            return True
        if self._on_full == "raise":
            raise queue.Full(
                f"the queue of {self._sink.name} is full: add less, pass a larger max_queue, or "
                'wait with on_full="wait"'
            )
        if self._on_full == "drop":
            self._drop()
            return False
        self._wait_for_all()
        self._refuse()
        return True

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1
            is_first = self.dropped == 1
        if is_first:
            _log.warning(
                "the queue of %s is full: new items are dropped, and counted in `dropped`",
                self._sink.name,
            )

    def _refuse(self) -> None:
        self._raise_error()
        if self._closed:
            raise RuntimeError(f"{self._sink.name} is closed: reopen() it before adding")

    def _raise_error(self) -> None:
        errors: list[BaseException] = []
        with suppress(IndexError):
            while self._errors:
                errors.append(self._errors.popleft())
        if errors:
            first, *rest = errors
            self._set_mark()
            lost = self._lost + self._sink.lost
            new = lost - self._reported
            if new > 0:
                text = f"{self._sink.name} lost {new} item{'s' if new > 1 else ''}"
                add_to_message(first, text)
            self._reported = lost
            rest = [error for error in rest if described(error) != described(first)]
            if rest:
                text = f"{len(rest)} more errors followed; the last is {described(rest[-1])}"
                add_note(first, text)
            raise first

    def _log_errors(self, when: str) -> None:
        try:
            self._raise_error()
        except Exception as error:  # noqa: BLE001 (their caller is gone)
            _log.warning("%s: %s", when, error_text(error))

    def __del__(self) -> None:
        if self._errors:
            self._give_up()
            self._log_errors(f"{self._sink.name} was never closed")

    def _wait_for_all(self, timeout: float | None = None) -> None:
        if self._writer == threading.get_ident():
            return  # a signal handler cannot wait for the write that it interrupts
        waiter: SimpleQueue[None] = SimpleQueue()
        left = math.inf if timeout is None else timeout
        while left > 0:
            # Each time: a killed thread has taken its waiters along.
            self._waiters.append(waiter)
            background.schedule(self, hurry=True)
            with suppress(Empty):
                waiter.get(timeout=min(left, _LOOK_SECS))
                return
            left -= _LOOK_SECS
        raise DeadlineExceededError(
            f"{self._sink.name} was not written within {timeout:.3g} seconds"
        )


class RemoteQueue(WriteQueue):
    """A ``WriteQueue`` with its own threads, so that event files do not wait for a service."""

    def _start_afresh(self) -> None:
        super()._start_afresh()
        # Held by a thread from its start until its turn.
        self._next = threading.Semaphore()

    def work(self) -> None:
        if self._next.acquire(blocking=False):
            thread = threading.Thread(target=self._work, name="runhooks-remote", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._work()

    def _work(self) -> None:
        with self._writing:
            self._next.release()
            super().work()
