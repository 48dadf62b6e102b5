"""Writers to a service: a queue with its own threads, and a package that has to be installed."""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.sinks.points import PointSink


class RemoteQueue(WriteQueue):
    """A ``WriteQueue`` with its own threads, so that event files do not wait for a service."""

    def __init__(self, sink: PointSink) -> None:
        self._set_locks()
        super().__init__(sink)

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


def optional(module: str, package: str) -> ModuleType:
    """Return ``module``. Raises ImportError, naming ``package``, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error
