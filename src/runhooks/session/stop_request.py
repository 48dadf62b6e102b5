"""``StopRequest``: why a session is to stop, and a wait that hears of it."""

from __future__ import annotations

import queue
from contextlib import suppress


class StopRequest:
    """Made by any thread, or by a signal handler; heard by whoever waits.

    A handler may interrupt any line, in the very thread that waits: an Event's lock could then be
    taken already, for good. ``SimpleQueue.put`` may be called at any moment.
    """

    def __init__(self) -> None:
        #: Who asked first, and why; None: nobody has.
        self.reason: str | None = None
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self, reason: str) -> None:
        """Ask to stop; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self._bell.put(None)

    def wait(self, secs: float) -> bool:
        """Wait ``secs`` seconds, but not once somebody has asked; whether somebody has."""
        if self.reason is None and secs > 0:
            with suppress(queue.Empty):
                self._bell.get(timeout=secs)
                self._bell.put(None)  # for the next who waits
        return self.reason is not None
