"""``StopRequest``: asks a session to stop, and ends whoever waits."""

from __future__ import annotations

import queue
import time
from contextlib import suppress

_LOOK_SECS = 1.0


class StopRequest:
    """A request to stop, made by any thread or signal handler, that ends a ``wait``.

    A signal handler may interrupt any line of the very thread that waits, and would deadlock on the
    lock of a ``threading.Event``. ``SimpleQueue.put`` is reentrant.
    """

    def __init__(self) -> None:
        #: Who asked first, and why; None if nobody has.
        self.reason: str | None = None
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self, reason: str) -> None:
        """Ask to stop. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self._bell.put(None)

    def wait(self, secs: float) -> bool:
        """Wait up to ``secs`` seconds for a request; return whether there is one."""
        end = time.monotonic() + secs
        while self.reason is None and (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                # A signal that comes just before Python waits for the lock does not end that wait.
                self._bell.get(timeout=min(left, _LOOK_SECS))
                self._bell.put(None)  # for the next who waits
        return self.reason is not None
