"""``StoreQueue``: the queue of an event file in a store."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from runhooks.errors import add_note
from runhooks.events.writing import background
from runhooks.events.writing.event_sink import EventSink
from runhooks.events.writing.queue_policy import OnFull
from runhooks.events.writing.remote_queue import RemoteQueue
from runhooks.stores.interruption import interrupting


class StoreQueue(RemoteQueue):
    """A ``RemoteQueue`` whose items are in the store ``flush_secs`` after they were added.

    ``flush`` returns when they are.
    """

    def __init__(self, sink: EventSink, max_queue: int, flush_secs: float, on_full: OnFull) -> None:
        self._events = sink
        self._flush_secs = flush_secs
        self._timer: threading.Timer | None = None
        super().__init__(sink, max_queue, flush_secs, on_full)

    def hasten(self, flush_secs: float) -> None:
        """Let items be stored after ``flush_secs`` from now on, unless they are even earlier."""
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
        # After an error somebody has to know of it first: else what fails would be tried for ever.
        if self._timer is None and self._events.is_waiting and not self._errors:
            wait = max(0.0, self._flush_secs - background.LINGER_SECS)
            self._timer = threading.Timer(wait, self._store_now)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:  # the process ends, or may have no more threads
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
