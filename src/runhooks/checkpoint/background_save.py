"""``BackgroundSave``: one save, by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("runhooks")


class BackgroundSave:
    """Calls ``save()``, which saves the checkpoint ``path``, while the caller goes on.

    The interpreter does not end before it has; a forked child has no part in it.
    """

    def __init__(self, path: str, save: Callable[[], object]) -> None:
        self.path = path
        self._error: BaseException | None = None
        self._told = False
        _saves[path] = self
        self._thread = threading.Thread(
            target=self._run, args=(save,), name="runhooks-save", daemon=False
        )
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending, and starts no more threads
            self._run(save)

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not; ``wait`` then returns at once."""
        return not self._thread.is_alive()

    @property
    def told(self) -> bool:
        """Whether ``wait`` has raised its error already."""
        return self._told

    def wait(self) -> None:
        """Return when the checkpoint is on the disk. Raises what saving it failed of."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            self._told = True
            self._forget()
            raise self._error

    def _run(self, save: Callable[[], object]) -> None:
        try:
            save()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
            _log.error("the checkpoint %s could not be saved: %r", self.path, error)
        else:
            self._forget()

    def _forget(self) -> None:
        if _saves.get(self.path) is self:
            del _saves[self.path]


_saves: dict[str, BackgroundSave] = {}


def save_under_way(path: str) -> BackgroundSave | None:
    """The background save of ``path``, whichever ``Saver`` of the process has begun it.

    None if there is none, or it has ended well, or somebody was told what it failed of.
    """
    return _saves.get(path)
