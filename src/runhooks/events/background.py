"""The one background thread of the process, in which all files of summaries are written.

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
from collections.abc import Callable
from functools import partial
from typing import Protocol

from runhooks import clock
from runhooks.events.call_all import call_all
from runhooks.events.one_line import one_line

#: Seconds from scheduling to writing, if nobody is in a hurry. It makes one large write of many
#: small ones, and leaves the interpreter to the training loop in between.
LINGER_SECS = 0.2

_logger = logging.getLogger("runhooks")


class Worker(Protocol):
    """What the background thread serves."""

    def work(self) -> None:
        """Do all there is to do. Raises nothing: what fails is kept for the next caller."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Return when all there was to do is done. Raises what failed, or took too long."""
        ...

    def forked(self) -> None:
        """Forget what belongs to the parent, locks too: the process was just forked off it."""
        ...


class _Background:
    def __init__(self) -> None:
        self._workers: weakref.WeakValueDictionary[int, Worker] = weakref.WeakValueDictionary()
        self._finished = False
        self._at_start: list[Callable[[], object]] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._scheduled: queue.SimpleQueue[tuple[Worker, bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call_at_start(self, call: Callable[[], object]) -> None:
        self._at_start.append(call)

    def register(self, worker: Worker) -> None:
        self._workers[id(worker)] = worker

    def schedule(self, worker: Worker, hurry: bool) -> None:
        if self._finished:
            worker.work()
            return
        thread = self._thread
        if thread is None or not thread.is_alive():
            try:
                self._start()
            except RuntimeError:  # the process may have no more threads
                worker.work()
                return
        self._scheduled.put((worker, hurry))

    def _start(self) -> None:
        # Two callers at once may start two threads: they share the work, and nobody waits.
        thread = threading.Thread(target=self._serve, name="runhooks-events", daemon=True)
        thread.start()
        self._thread = thread
        for call in self._at_start:
            call()
        if "multiprocessing.util" in sys.modules:
            # A child of multiprocessing ends without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self.finish, exitpriority=0)

    def _serve(self) -> None:
        try:
            while True:
                for worker in self._next():
                    worker.work()
        finally:
            # Somebody has raised an exception in this thread, to end it: it takes along who was
            # scheduled. Another thread goes on.
            self._thread = None
            for worker in self._living():
                self.schedule(worker, hurry=True)

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

    def _living(self) -> list[Worker]:
        workers = (ref() for ref in self._workers.valuerefs())
        return [worker for worker in workers if worker is not None]

    def flush_all(self, timeout: float | None = None) -> None:
        end = None if timeout is None else clock.monotonic() + timeout
        call_all(partial(_flush, worker, end) for worker in self._living())

    def finish(self) -> None:
        # In the thread if there is one: SIGTERM can wait for that, but not for what it interrupts
        # itself. It is about to be cut off, and no other can be started: the rest is written here.
        self._flush_or_log()
        self._finished = True
        self._flush_or_log()

    def _flush_or_log(self) -> None:
        try:
            self.flush_all()
        except Exception as error:  # noqa: BLE001 (nobody is there to get it)
            _logger.error("events were lost as the process ended: %s", one_line(error))

    def forked(self) -> None:
        # The thread is the parent's, and so is what was scheduled.
        self._start_afresh()
        for worker in self._living():
            worker.forked()


def _flush(worker: Worker, end: float | None) -> None:
    worker.flush(None if end is None else max(0.0, end - clock.monotonic()))


_background = _Background()
atexit.register(_background.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forked)


def register(worker: Worker) -> None:
    """Have ``worker`` flushed with all, and told of forks, as long as it lives."""
    _background.register(worker)


def call_at_start(call: Callable[[], object]) -> None:
    """Have ``call`` called when the thread is started, which a forked child has to do anew."""
    _background.call_at_start(call)


def schedule(worker: Worker, hurry: bool = False) -> None:
    """Let ``worker`` work soon: after ``LINGER_SECS``, or now if there is ``hurry``."""
    _background.schedule(worker, hurry)


def flush_all(timeout: float | None = None) -> None:
    """Flush every writer of the process; raise what failed first when all are flushed.

    ``timeout``: seconds that this may take; those that take longer raise DeadlineExceededError.
    """
    _background.flush_all(timeout)
