"""The one background thread of the process, in which all event files are written.

It sleeps until a worker is scheduled, waits a moment for more to come, and lets each scheduled
worker work. It is started when it is first needed, never ends, and keeps no process alive: when
the process ends all workers are flushed, and after that a scheduled worker works at once, in the
thread that schedules.

A signal handler may schedule and flush: it may interrupt any line here, so no lock is taken.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
import weakref
from typing import Protocol

from runhooks import clock
from runhooks.events.call_all import call_all

#: Seconds from scheduling to writing, if nobody is in a hurry. It makes one large write of many
#: small ones, and leaves the interpreter to the training loop in between.
LINGER_SECS = 0.2

_logger = logging.getLogger("runhooks")


class Worker(Protocol):
    """What the background thread serves."""

    def work(self) -> None:
        """Do all there is to do. Raises nothing: what fails is kept for the next caller."""
        ...

    def flush(self) -> None:
        """Return when all there was to do is done. Raises what failed."""
        ...

    def forked(self) -> None:
        """Forget what belongs to the parent, locks too: the process was just forked off it."""
        ...


class _Background:
    def __init__(self) -> None:
        self._workers: weakref.WeakValueDictionary[int, Worker] = weakref.WeakValueDictionary()
        self._finished = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._scheduled: queue.SimpleQueue[tuple[Worker, bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def register(self, worker: Worker) -> None:
        self._workers[id(worker)] = worker

    def schedule(self, worker: Worker, hurry: bool) -> None:
        if self._finished:
            worker.work()
            return
        self._scheduled.put((worker, hurry))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        # Two callers at once may start two threads: they share the work, and nobody waits.
        thread = threading.Thread(target=self._serve, name="runhooks-events", daemon=True)
        thread.start()
        self._thread = thread
        if "multiprocessing.util" in sys.modules:
            # A child of multiprocessing ends without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self.finish, exitpriority=0)

    def _serve(self) -> None:
        while True:
            for worker in self._next():
                worker.work()

    def _next(self) -> list[Worker]:
        worker, hurry = self._scheduled.get()
        workers = {worker: None}
        end = clock.monotonic() + LINGER_SECS
        while not hurry:
            try:
                worker, hurry = self._scheduled.get(timeout=max(0.0, end - clock.monotonic()))
            except queue.Empty:
                break
            workers[worker] = None
        return list(workers)

    def flush_all(self) -> None:
        workers = [ref() for ref in self._workers.valuerefs()]
        call_all(worker.flush for worker in workers if worker is not None)

    def finish(self) -> None:
        # First: a thread can no longer be started, and this one is about to be cut off.
        self._finished = True
        try:
            self.flush_all()
        except Exception:
            _logger.exception("events were lost as the process ended")

    def forked(self) -> None:
        # The thread is the parent's, and so is what was scheduled.
        self._start_afresh()
        for worker in list(self._workers.values()):
            worker.forked()


_background = _Background()
atexit.register(_background.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forked)


def register(worker: Worker) -> None:
    """Have ``worker`` flushed with all, and told of forks, as long as it lives."""
    _background.register(worker)


def schedule(worker: Worker, hurry: bool = False) -> None:
    """Let ``worker`` work soon: after ``LINGER_SECS``, or now if there is ``hurry``."""
    _background.schedule(worker, hurry)


def flush_all() -> None:
    """Flush every event writer of the process; raise what failed first when all are flushed."""
    _background.flush_all()
