"""``RemoteQueue``: a queue to a place that may let one wait, such as a server."""

from __future__ import annotations

import threading

from runhooks.events.write_queue import WriteQueue
from runhooks.summary.sinks.point_sink import PointSink


class RemoteQueue(WriteQueue):
    """A ``WriteQueue`` that is written in threads of its own: event files do not wait for it."""

    def __init__(self, sink: PointSink) -> None:
        self._set_locks()
        super().__init__(sink)

    def _set_locks(self) -> None:
        self._turn = threading.RLock()
        #: Held by a thread from when it is made until its turn: it will see all there is by then.
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
