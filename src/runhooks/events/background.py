"""The one background thread of the process, in which all event files are written.

It sleeps until a worker is scheduled, waits a moment for more to come, and lets each scheduled
worker work. It is started when it is first needed, never ends, and keeps no process alive: at exit
all workers finish, and after that a scheduled worker works at once, in the thread that schedules.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol

#: Seconds from scheduling to writing, if nobody is in a hurry. It makes one large write of many
#: small ones, and leaves the interpreter to the training loop in between.
LINGER_SECS = 0.2


class Worker(Protocol):
    """What the background thread serves."""

    def work(self) -> None:
        """Do all there is to do. Raises nothing: what fails is kept for the next caller."""
        ...

    def finish(self) -> None:
        """The process ends: do all there is to do. Raises nothing."""
        ...

    def forked(self) -> None:
        """Forget what belongs to the parent, locks too: the process was just forked off it."""
        ...


class _Background:
    def __init__(self) -> None:
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()
        self._finished = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._changed = threading.Condition()
        self._scheduled: dict[Worker, None] = {}
        self._hurry = False
        self._thread: threading.Thread | None = None

    def register(self, worker: Worker) -> None:
        self._workers.add(worker)

    def schedule(self, worker: Worker, hurry: bool) -> None:
        if self._finished:
            worker.work()
            return
        with self._changed:
            self._scheduled[worker] = None
            self._hurry = self._hurry or hurry
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="runhooks-events", daemon=True)
                thread.start()
                self._thread = thread  # if it could be started; else the next one tries again
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            for worker in self._next():
                worker.work()

    def _next(self) -> list[Worker]:
        with self._changed:
            self._changed.wait_for(lambda: self._scheduled)
            self._changed.wait_for(lambda: self._hurry, timeout=LINGER_SECS)
            workers = list(self._scheduled)
            self._scheduled.clear()
            self._hurry = False
            return workers

    def finish(self) -> None:
        # First: a thread can no longer be started, and this one is about to be cut off.
        self._finished = True
        for worker in list(self._workers):
            worker.finish()

    def forked(self) -> None:
        # The thread is the parent's, and a lock may have been held when the process forked.
        self._start_afresh()
        for worker in list(self._workers):
            worker.forked()


_background = _Background()
atexit.register(_background.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forked)


def register(worker: Worker) -> None:
    """Have ``worker`` told of forks and of the end of the process, as long as it lives."""
    _background.register(worker)


def schedule(worker: Worker, hurry: bool = False) -> None:
    """Let ``worker`` work soon: after ``LINGER_SECS``, or now if there is ``hurry``."""
    _background.schedule(worker, hurry)
