"""``BackgroundSave``: one save, made by a thread of its own."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from runhooks.checkpoint.reading import printable
from runhooks.errors import described
from runhooks.stores.interruption import interrupting

_log = logging.getLogger("runhooks")


class BackgroundSave:
    """Calls ``save()``, which saves the checkpoint ``path``, while the caller goes on.

    The interpreter does not exit before it is done, except at a second Ctrl-C. A forked child has
    no part in it.
    """

    def __init__(self, path: str, save: Callable[[], object]) -> None:
        self.path = path
        self._save = save
        self._error: BaseException | None = None
        self._raised = False
        self._pid = os.getpid()
        self._claim = threading.Lock()  # of the thread, or of ``cancel``
        # To wait for the thread itself is not safe: on CPython 3.11 a Ctrl-C during Thread.join
        # makes the interpreter believe that the thread has ended, and exit.
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the save; without a thread, if the interpreter starts no more."""
        _saves[self.path] = self
        try:
            threading.Thread(target=self._run, name="runhooks-save", daemon=False).start()
        except RuntimeError:
            self._run()

    def cancel(self) -> bool:
        """Give up the save unless it runs already; return whether it will never run.

        A Ctrl-C during ``start`` leaves that open.
        """
        if not self._claim.acquire(blocking=False):
            return False
        self._forget()
        self._ended.set()
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without success; ``wait`` then returns at once."""
        return self._ended.is_set() or os.getpid() != self._pid

    @property
    def raised(self) -> bool:
        """Whether ``wait`` has raised its error already."""
        return self._raised

    def wait(self) -> None:
        """Return when the checkpoint is on the disk; raise the error that saving it failed with."""
        if not self.done:
            with interrupting():
                self._ended.wait()
        if self._error is not None:
            self._raised = True
            self._forget()
            raise self._error

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._save()
        except BaseException as error:  # noqa: BLE001 - ``wait`` raises it
            self._error = error
            path = printable(self.path)
            _log.error("the checkpoint %s could not be saved: %s", path, described(error))
        else:
            self._forget()
        finally:
            self._save = _nothing  # what it has written is needed no more
            self._ended.set()

    def _forget(self) -> None:
        if _saves.get(self.path) is self:
            del _saves[self.path]


def _nothing() -> None:
    pass


_saves: dict[str, BackgroundSave] = {}


def save_under_way(path: str) -> BackgroundSave | None:
    """Return the background save of ``path``, whichever ``Saver`` of the process started it.

    None if there is none, if it has succeeded, or if its error was raised already.
    """
    return _saves.get(path)


@atexit.register
def _finish() -> None:
    """Go on waiting where a Ctrl-C has ended the interpreter's own waiting for threads."""
    for save in list(_saves.values()):
        with suppress(Exception):  # was logged
            save.wait()
