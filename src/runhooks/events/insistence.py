"""``Insistence``: a signal whose handler is called even if the main thread missed it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_SECS = 0.05


class Insistence:
    """Interrupts the main thread again and again after ``number`` came, until ``is_over()``.

    A lock of multiprocessing that is released just then goes on waiting, its process with it, as
    the handler of a signal is called between two bytecodes only. A pool that ends its workers sends
    SIGTERM once, and then waits for them. Made in the main thread; does nothing if somebody else
    wants to be woken by signals, as asyncio does.
    """

    def __init__(self, number: signal.Signals, is_over: Callable[[], bool]) -> None:
        self._number = number
        self._is_over = is_over
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        threading.Thread(target=self._insist, name="runhooks-sigterm", daemon=True).start()

    def forked(self) -> None:
        """Leave it to the parent, to whom the pipe leads."""
        before = signal.set_wakeup_fd(-1)
        if before != self._writer:
            signal.set_wakeup_fd(before)
        os.close(self._reader)
        os.close(self._writer)

    def _insist(self) -> None:
        while came := os.read(self._reader, 1):
            while came[0] == self._number and not self._is_over():
                time.sleep(_SECS)
                signal.pthread_kill(threading.main_thread().ident or 0, self._number)
