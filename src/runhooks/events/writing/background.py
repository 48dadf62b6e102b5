"""The one background thread of the process, which writes all event files and other summaries.

It sleeps until a worker is scheduled, waits a moment for others, and lets each scheduled worker
work. It starts when it is first needed, never ends, and is a daemon: when the process ends, all
workers are flushed, and from then on a scheduled worker works at once, in the calling thread.

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
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from runhooks import clock
from runhooks.errors import call_all, error_text

#: Seconds from scheduling to writing, unless there is a hurry. The pause turns many small writes
#: into a large one, and leaves the interpreter to the training loop.
LINGER_SECS = 0.2

# For each of the workers, although the time is over: it may have nothing to do.
_LEAST_SECS = 0.05

_logger = logging.getLogger("runhooks")


class Worker(Protocol):
    """An object with work for the background thread."""

    def work(self) -> None:
        """Do all the work there is. Keeps errors for the next caller and raises none."""

    def flush(self, timeout: float | None = None) -> None:
        """Return when all the work is done. Raises its errors, or that it takes too long."""

    def settle(self) -> None:
        """Return when all the work is done. Keeps its errors for the next caller."""

    def finish(self, timeout: float | None = None) -> None:
        """Flush as the process ends, after which nobody tries again."""

    def forked(self) -> None:
        """Forget the state of the parent process, locks too: this is a child just forked."""


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
        """Call ``call`` whenever the thread starts: the first time, and in each forked child."""
        self._at_start.append(call)

    def register(self, worker: Worker) -> None:
        """Include ``worker`` in ``flush_all`` and in forks, as long as it is referenced."""
        self._workers[id(worker)] = worker

    def schedule(self, worker: Worker, hurry: bool = False) -> None:
        """Let ``worker`` work after ``LINGER_SECS``, or now if ``hurry``."""
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
        # Two callers at once may start two threads, which then share the work.
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
            # Somebody has raised an exception in this thread to end it, so the scheduled workers
            # are lost. Another thread goes on.
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
        call_all(partial(_by, end, worker.flush) for worker, end in self._each(timeout))

    def settle_all(self) -> None:
        """Return when every writer of the process has written what was added before.

        What went wrong is raised by the next call of the writer that it happened to.
        """
        for worker in self._living():
            worker.settle()

    def finish_all(self, timeout: float | None = None) -> None:
        """As ``flush_all``, as the process ends: what cannot be written is lost, and counted."""
        call_all(partial(_by, end, worker.finish) for worker, end in self._each(timeout))

    def _each(self, timeout: float | None) -> Iterator[tuple[Worker, float | None]]:
        end = None if timeout is None else clock.monotonic() + timeout
        return ((worker, end) for worker in self._living())

    def finish(self) -> None:
        # In the thread if there is one, because a handler of SIGTERM can wait for a thread, but not
        # for the code that it interrupts. The thread is about to be cut off and cannot be replaced,
        # so later items are written in the calling thread.
        self._finish_or_log()
        self._finished = True
        self._finish_or_log()

    def _finish_or_log(self) -> None:
        try:
            self.finish_all()
        except Exception as error:  # noqa: BLE001 (no caller is left)
            _logger.error("events were lost as the process ended: %s", error_text(error))

    def forked(self) -> None:
        # The thread and the scheduled workers are the parent's.
        self._start_afresh()
        for worker in self._living():
            worker.forked()


def _by(end: float | None, act: Callable[[float | None], object]) -> None:
    act(None if end is None else max(_LEAST_SECS, end - clock.monotonic()))


_background = _Background()
atexit.register(_background.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forked)


register = _background.register
call_at_start = _background.call_at_start
schedule = _background.schedule
settle_all = _background.settle_all
finish_all = _background.finish_all


def flush_all(timeout: float | None = None) -> None:
    """Flush every writer of the process, then raise the first error with notes on the others.

    Args:
        timeout: Seconds that this may take; None: no limit.

    Raises:
        DeadlineExceededError: If a writer is not flushed within ``timeout``.
    """
    _background.flush_all(timeout)
