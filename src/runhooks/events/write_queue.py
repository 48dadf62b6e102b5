"""``WriteQueue``: what waits to be written by the background thread, and what came of it.

All that waits lies flat in one list, four slots an item, because of what that saves. The caller
makes no object that lasts, and the garbage collector none to look at; whoever writes gets columns
by slicing. One call extends the list, another cuts off its beginning: each is atomic, so there is
no lock, and a signal handler may interrupt any line.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from runhooks import arguments
from runhooks.errors import DeadlineExceededError
from runhooks.events import background, termination
from runhooks.events.queue_policy import OnFull, queue_policy

#: What may wait if nobody says otherwise: more than a loop that does nothing but add scalars adds
#: in 0.1 seconds. It then waits for as long as it takes to encode them. So many hold 56 MB.
MAX_QUEUE = 500_000

#: Bytes of arrays that may wait, in any queue. What is beyond meets a full queue.
MAX_WAITING_BYTES = 256 << 20

#: In the place of a tag, it says that the value is a message: an event, a line.
MESSAGE: Final = object()

_WIDTH = len(("tag", "value", "step", "wall_time"))
_BATCH = 1 << 15  # items: few enough that no call holds the interpreter for a millisecond
_LARGE = 1 << 14  # bytes from which on a message is counted
_LOOK_SECS = 1.0  # after which one who waits looks whether the background thread is still there


class Batch(NamedTuple):
    """Some of what waited, in the order in which it was added, by column.

    A scalar has a tag, a value, a step and a time. A message has ``MESSAGE`` in place of the tag,
    and nothing to say as step and time.
    """

    tags: list[Any]
    values: list[Any]
    steps: list[Any]
    wall_times: list[Any]


class Sink(Protocol):
    """Where a queue is written to. One thread at a time calls it."""

    @property
    def name(self) -> str:
        """What it is called in errors."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether somebody has deleted it."""
        ...

    def open(self) -> None:
        """Go on in a new place. Raises OSError if that cannot be written."""
        ...

    def write(self, batch: Batch) -> list[BaseException]:
        """Write ``batch`` in order; return what went wrong. What is at fault is lost."""
        ...

    def close(self) -> None:
        """Write no more; again: nothing happens."""
        ...

    def forked(self) -> None:
        """Leave the place to the parent; go on in a new one when there is something to write."""
        ...


class WriteQueue:
    """What waits to be written to ``sink``, in the background.

    ``max_queue``: scalars and messages that may wait. ``flush_secs``: what is added is written 0.2
    seconds later, or at once if this is less. ``on_full``: what happens at ``max_queue``.

    What goes wrong in the background is raised, once, by the next call that adds, flushes or
    closes. Any thread or signal handler may call any method.

    Raises ValueError if ``max_queue``, a whole number, or ``flush_secs`` is not above zero.
    """

    def __init__(
        self,
        sink: Sink,
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        on_full: OnFull = "wait",
    ) -> None:
        arguments.given(max_queue=max_queue, flush_secs=flush_secs)
        arguments.whole(max_queue=max_queue)
        arguments.positive(flush_secs=flush_secs)
        self._sink = sink
        self._limit = max_queue * _WIDTH
        self._on_full = on_full
        self._hurry = flush_secs < background.LINGER_SECS
        self._closed = False
        self._start_afresh()
        background.register(self)
        termination.guard(self)

    def _start_afresh(self) -> None:
        self._items: list[Any] = []
        self._sizes: list[int] = []  # of the large messages among them
        self._policy = queue_policy(self._on_full, self._sink.name)
        self._idle = True  # nobody is about to write
        #: Who waits gets something when all that was added before is written. (A threading.Event
        #: would not do: a signal handler that interrupts a thread in one may have to wait too.)
        self._waiters: deque[SimpleQueue[None]] = deque()
        self._errors: deque[BaseException] = deque()
        self._writing = threading.RLock()
        self._writer: int | None = None  # the thread that is writing
        self._set_mark()

    def _set_mark(self) -> None:
        # Where `put` has to look closer: at once if there is something to raise.
        self._mark = 0 if self._closed or self._errors else self._limit

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    @property
    def dropped(self) -> int:
        """How much was dropped because the queue was full."""
        return self._policy.dropped

    def put(self, tag: Any, value: Any, step: Any, wall_time: float) -> None:
        """Have this written, as one item of a ``Batch``.

        Raises RuntimeError if the queue is closed, ``queue.Full`` if it is full and the policy is
        to raise, and what went wrong in the background before; this is then not written. What
        another thread adds while the queue is being closed may be lost, which the next call raises.
        """
        items = self._items
        if len(items) >= self._mark and not self._admits():
            return
        items.extend((tag, value, step, wall_time))
        if self._idle:
            self._wake()

    def put_message(self, message: Any, nbytes: int = 0) -> None:
        """Have ``message`` written; ``nbytes``: of the arrays in it. Raises what ``put`` does."""
        if nbytes >= _LARGE:
            if not self._admits(nbytes):
                return
            self._sizes.append(nbytes)
            self._items.extend((MESSAGE, message, True, 0.0))
            if self._idle:
                self._wake()
        else:
            self.put(MESSAGE, message, False, 0.0)

    def flush(self, timeout: float | None = None) -> None:
        """Return when all that was added before is handed to the operating system.

        Raises what went wrong in the background; DeadlineExceededError if it takes longer than
        ``timeout``, in seconds. On a closed queue: nothing to do.
        """
        if not self._closed:
            self._wait_for_all(timeout)
            self._raise_error()

    def close(self) -> None:
        """Flush, and close the sink; again: nothing happens.

        Raises what went wrong in the background; the sink is closed nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        self._set_mark()
        self._wait_for_all()
        with self._writing:
            self._sink.close()
        termination.release(self)
        self._raise_error()

    def reopen(self) -> bool:
        """Go on in a new place if it is closed or the place is gone; whether that was so.

        Raises OSError if there can be no new place.
        """
        if not self._closed and not self._sink.is_gone:
            return False
        with self._writing:
            self._sink.open()
        self._closed = False
        self._set_mark()
        termination.guard(self)
        return True

    def work(self) -> None:
        """Write all that was added (the background thread calls this)."""
        if self._writer == threading.get_ident():
            return  # a signal handler, in the middle of what is below
        with self._writing:
            self._writer = threading.get_ident()
            try:
                self._write_all()
            finally:
                self._writer = None

    def forked(self) -> None:
        """Leave the sink, and all that waits, to the parent process."""
        self._sink.forked()
        self._start_afresh()

    def _write_all(self) -> None:
        # Before looking: what is added after the last look then wakes somebody again.
        self._idle = True
        while self._items or self._waiters:
            waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
            end = len(self._items)  # what the waiters wait for is before it
            while end > 0:
                end -= self._write_batch(min(end, _BATCH * _WIDTH))
            for waiter in waiters:
                waiter.put(None)

    def _write_batch(self, end: int) -> int:
        batch = Batch(*(self._items[slot:end:_WIDTH] for slot in range(_WIDTH)))
        try:
            errors = self._sink.write(batch)
        except BaseException as error:  # noqa: BLE001 (the caller gets it; no one may hang)
            error.add_note(f"up to {len(batch.tags)} items for {self._sink.name} are lost")
            errors = [error]
        # Only now: what is being written counts as waiting.
        del self._items[:end]
        if self._sizes:
            large = sum(s for tag, s in zip(batch.tags, batch.steps, strict=True) if tag is MESSAGE)
            del self._sizes[:large]
        self._errors.extend(errors)
        self._set_mark()
        return end

    def _wake(self) -> None:
        self._idle = False
        background.schedule(self, self._hurry)

    def _admits(self, nbytes: int = 0) -> bool:
        self._refuse()
        self._set_mark()
        waiting = sum(self._sizes)
        has_bytes = not waiting or waiting + nbytes <= MAX_WAITING_BYTES
        if len(self._items) < self._limit and has_bytes:
            return True
        admits = self._policy.admits(self._wait_for_all)
        self._refuse()  # it may have been closed, or have failed, in the meantime
        return admits

    def _refuse(self) -> None:
        self._raise_error()
        if self._closed:
            raise RuntimeError(f"{self._sink.name} is closed: reopen() it before adding")

    def _raise_error(self) -> None:
        if self._errors:
            first, *rest = (self._errors.popleft() for _ in range(len(self._errors)))
            self._set_mark()
            if rest:
                first.add_note(f"{len(rest)} more errors followed; the last is {rest[-1]!r}")
            raise first

    def _wait_for_all(self, timeout: float | None = None) -> None:
        if self._writer == threading.get_ident():
            return  # a signal handler cannot wait for the very write that it interrupts
        waiter: SimpleQueue[None] = SimpleQueue()
        left = math.inf if timeout is None else timeout
        while left > 0:
            # Each time: a thread that was killed has taken along who waited for it.
            self._waiters.append(waiter)
            background.schedule(self, hurry=True)
            with suppress(Empty):
                waiter.get(timeout=min(left, _LOOK_SECS))
                return
            left -= _LOOK_SECS
        raise DeadlineExceededError(f"{self._sink.name} was not written within {timeout} seconds")
