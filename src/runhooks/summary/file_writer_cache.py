"""``FileWriterCache``: the writers of this process, by directory."""

from __future__ import annotations

import os
import threading
from typing import ClassVar

from runhooks.events.place import identity, place
from runhooks.events.writing.failures import call_all
from runhooks.summary.file_writer import FileWriter


class FileWriterCache:
    """Shares one writer per directory. Any thread may ask for it."""

    _lock: ClassVar = threading.RLock()
    _writers: ClassVar[dict[str, FileWriter]] = {}

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of ``logdir``, however its path is spelled.

        If it was closed, or its file was deleted, it continues in a new file.

        Raises:
            OSError: No file can be made there.
        """
        path = identity(place(logdir=logdir))
        with cls._lock:
            if path not in cls._writers:
                cls._writers[path] = FileWriter(path)
            cls._writers[path].reopen()
            return cls._writers[path]

    @classmethod
    def clear(cls) -> None:
        """Close all writers and forget them; then raise the first error, if any."""
        with cls._lock:
            writers = list(cls._writers.values())
            cls._writers.clear()
            call_all(writer.close for writer in writers)

    @classmethod
    def forked(cls) -> None:
        """Forget the lock: somebody may have held it in the parent when the process was forked."""
        cls._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileWriterCache.forked)
