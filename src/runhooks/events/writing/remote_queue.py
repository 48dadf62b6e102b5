"""``RemoteQueue``: a queue whose writing may wait for a network."""

from __future__ import annotations

import threading

from runhooks.events.writing.queue_policy import OnFull
from runhooks.events.writing.write_queue import MAX_QUEUE, Sink, WriteQueue


class RemoteQueue(WriteQueue):
    """A ``WriteQueue`` with its own threads, so that event files do not wait for a service."""

    def __init__(
        self,
        sink: Sink,
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        on_full: OnFull = "wait",
    ) -> None:
        self._set_locks()
        super().__init__(sink, max_queue, flush_secs, on_full)

    def _set_locks(self) -> None:
        self._turn = threading.RLock()
        #: Held by a thread from its start until its turn: it then writes all that was added.
        self._next = threading.Semaphore()

    def work(self) -> None:
        if self._next.acquire(blocking=False):
            thread = threading.Thread(target=self._work, name="runhooks-remote", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process ends, or may have no more threads
                self._work()

    def forked(self) -> None:
        self._set_locks()
        super().forked()

    def _work(self) -> None:
        with self._turn:
            self._next.release()
            super().work()
