"""One event file for a directory: writers that are open in this process at a time share it.

TensorBoard and ``events.read`` read the files of a directory one after the other, and a ``START``
drops what was read before it of later steps. With a file each, the ``START`` of one writer would
hide what another one writes beside it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from runhooks.events import EventWriter, OnFull
from runhooks.events.place import identity
from runhooks.events.writing.background import LINGER_SECS
from runhooks.events.writing.write_queue import MAX_QUEUE


class FileOptions(NamedTuple):
    """How a writer wants its file to be written, as ``EventWriter`` takes it."""

    max_queue: int = MAX_QUEUE
    flush_secs: float = 120
    filename_suffix: str = ""
    on_full: OnFull = "wait"

    @property
    def are_default(self) -> bool:
        """Whether any file will do."""
        return self._replace(flush_secs=120) == FileOptions() and self.flush_secs >= LINGER_SECS


class StartMark:
    """The step of a ``START`` that nothing of that step or later came after; None if none is.

    ``count``: how many were written.
    """

    __slots__ = ("count", "step")

    def __init__(self) -> None:
        self.step: int | None = None
        self.count = 0


class SharedFile:
    """An event file and the writers that have it open. Any thread may use it."""

    _lock: ClassVar = threading.RLock()
    _by_directory: ClassVar[weakref.WeakValueDictionary[str, SharedFile]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, events: EventWriter) -> None:
        self.events = events
        self.start = StartMark()
        #: The tags whose metadata is in the file.
        self.described: set[str] = set()
        self._writers: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def join(
        cls, writer: Any, logdir: str, options: FileOptions, make: Callable[[], EventWriter]
    ) -> SharedFile:
        """Return the file in ``logdir`` that ``writer`` is to write to, until it leaves it.

        That is the one which others have open, if ``options`` are the default; else a new one,
        which ``make`` makes. Raises what that does.
        """
        directory = identity(logdir)
        with cls._lock:
            file = cls._by_directory.get(directory)
            if file is None or not options.are_default:
                file = cls(make())
                cls._by_directory.setdefault(directory, file)
            else:
                file.reopen()
                file.events.hasten(options.flush_secs)
            file._writers.add(writer)
            return file

    def leave(self, writer: Any) -> None:
        """Flush; close the file if no other writer has it open.

        Raises what went wrong in the background; ``writer`` has left nevertheless.
        """
        with self._lock:
            self._writers.discard(writer)
            is_last = not self._writers
            if is_last:
                for directory, file in list(self._by_directory.items()):
                    if file is self:
                        del self._by_directory[directory]
        if is_last:
            self.events.close()
        else:
            self.events.flush()

    def reopen(self) -> None:
        """Continue in a new file if this one was deleted."""
        if self.events.reopen():
            self.start.step = None
            self.described.clear()

    @classmethod
    def forked(cls) -> None:
        """Forget the lock: somebody may have held it in the parent when the process was forked."""
        cls._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SharedFile.forked)
