"""``FileWriterCache``: one writer for a directory, shared by all who write there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import ClassVar

from runhooks.summary.file_writer import FileWriter


class FileWriterCache:
    """The writers of this process, one for each directory. Any thread may use it."""

    _lock: ClassVar = threading.RLock()
    _writers: ClassVar[dict[str, FileWriter]] = {}

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of ``logdir``, whatever path leads there; a closed one is reopened.

        Raises OSError, naming the directory, if no file can be made there.
        """
        path = os.path.realpath(logdir)
        with cls._lock:
            if path not in cls._writers:
                cls._writers[path] = FileWriter(path)
            cls._writers[path].reopen()
            return cls._writers[path]

    @classmethod
    def flush(cls) -> None:
        """Flush all writers; raise what failed first when the others are flushed."""
        with cls._lock:
            _each(FileWriter.flush, list(cls._writers.values()))

    @classmethod
    def clear(cls) -> None:
        """Close all writers and forget them; raise what failed first when all are closed."""
        with cls._lock:
            writers = list(cls._writers.values())
            cls._writers.clear()
            _each(FileWriter.close, writers)

    @classmethod
    def forked(cls) -> None:
        """Forget the lock: somebody may have held it in the parent when the process was forked."""
        cls._lock = threading.RLock()


def _each(action: Callable[[FileWriter], None], writers: Iterable[FileWriter]) -> None:
    errors = []
    for writer in writers:
        try:
            action(writer)
        except Exception as error:  # noqa: BLE001 (raised when all are done)
            errors.append(error)
    if errors:
        first, *rest = errors
        for other in rest:
            first.add_note(f"and another writer failed: {other!r}")
        raise first


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileWriterCache.forked)
