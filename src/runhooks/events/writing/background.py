"""The one background thread of the process, which writes all event files and other summaries.

It is a daemon: when the process ends, all workers are flushed, and then scheduled ones work in the
calling thread. A signal handler may interrupt any line here, to schedule or flush, so no lock is
taken.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Protocol

from runhooks import clock
from runhooks.errors import call_all, error_text

#: From scheduling to writing, unless there is a hurry: many small writes become one.
LINGER_SECS = 0.2

# For a worker although the time is over: it may have nothing to do.
_LEAST_SECS = 0.05

#: That SIGTERM waits: less than usual supervisors do.
GRACE_SECS = 5

_logger = logging.getLogger("runhooks")


class Worker(Protocol):
    def work(self) -> None:
        """Do all the work; keep its errors for the next caller."""

    def flush(self, timeout: float | None = None) -> None:
        """Return when all the work is done; raise its errors."""

    def settle(self) -> None:
        """As ``flush``, but keep the errors."""

    def finish(self, timeout: float | None = None) -> None:
        """As ``flush``, as the process ends: nobody tries again."""

    def forked(self) -> None:
        """Leave everything to the parent process, locks too."""


class _Background:
    def __init__(self) -> None:
        self._workers: weakref.WeakValueDictionary[int, Worker] = weakref.WeakValueDictionary()
        self._finished = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._scheduled: queue.SimpleQueue[tuple[Worker, bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

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
            except RuntimeError:
                worker.work()
                return
        self._scheduled.put((worker, hurry))

    def _start(self) -> None:
        # Two callers at once may start two threads, which then share the work.
        thread = threading.Thread(target=self._serve, name="runhooks-events", daemon=True)
        thread.start()
        self._thread = thread
        _install()
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
            # An exception was raised in this thread to end it.
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

    def end_all(
        self, act: Callable[[Worker, float | None], None], timeout: float | None = None
    ) -> None:
        end = None if timeout is None else clock.monotonic() + timeout

        def act_on(worker: Worker) -> None:
            act(worker, None if end is None else max(_LEAST_SECS, end - clock.monotonic()))

        call_all(partial(act_on, worker) for worker in self._living())

    def settle_all(self) -> None:
        for worker in self._living():
            worker.settle()

    def finish(self) -> None:
        # First in the thread: a handler of SIGTERM can wait for it, but not for what it interrupts.
        # Then without the thread, which is about to be cut off.
        self.finish_or_log("the process ended")
        self._finished = True
        self.finish_or_log("the process ended")

    def finish_or_log(self, what: str, timeout: float | None = None) -> None:
        try:
            self.end_all(lambda worker, secs: worker.finish(secs), timeout)
        except Exception as error:  # noqa: BLE001 (no caller is left)
            _logger.error("events were lost as %s: %s", what, error_text(error))

    def forked(self) -> None:
        self._start_afresh()
        for worker in self._living():
            worker.forked()


_background = _Background()
atexit.register(_background.finish)

register = _background.register
schedule = _background.schedule
settle_all = _background.settle_all


def flush_all(timeout: float | None = None) -> None:
    """Flush every writer of the process, then raise the first error with notes on the others.

    Raises DeadlineExceededError if a writer is not flushed within ``timeout`` seconds.
    """
    _background.end_all(lambda worker, secs: worker.flush(secs), timeout)


_guarded: weakref.WeakSet[object] = weakref.WeakSet()
_masks = threading.local()


def guard(writer: object) -> None:
    """Have SIGTERM flush all files before it ends the process, unless it has a handler already.

    Only in the main thread, and not in a child of multiprocessing: a pool sends SIGTERM once and
    waits for ever, but Python never calls a handler in a worker that waits for a lock.
    """
    _guarded.add(writer)
    _install()


def release(writer: object) -> None:
    """Stop guarding ``writer``; after the last one, remove our handler."""
    _guarded.discard(writer)
    if not _guarded and _is_ours() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _install() -> None:
    if threading.current_thread() is not threading.main_thread() or _is_child():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_end)


def _is_child() -> bool:
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _is_ours() -> bool:
    return signal.getsignal(signal.SIGTERM) is _flush_and_end


def _flush_and_end(number: int, frame: FrameType | None) -> None:
    if not _is_ours():
        return  # another handler has replaced this one and calls it
    try:
        _background.finish_or_log("SIGTERM ended the process", GRACE_SECS)
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _before_fork() -> None:
    # A signal that comes too early would find the handler in a child that is not ready.
    if _is_ours():
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _forked() -> None:
    # A child with nothing to write is to be ended by the system: see guard.
    if _is_ours():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unmask()


def _unmask() -> None:
    before = _masks.__dict__.pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if hasattr(os, "register_at_fork"):
    # Two: a KeyboardInterrupt in one does not skip the other.
    os.register_at_fork(after_in_child=_background.forked)
    os.register_at_fork(before=_before_fork, after_in_parent=_unmask, after_in_child=_forked)
