"""Event files that are read: on this machine or in a store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import TypeAlias

from runhooks.stores.object_file import ObjectFile
from runhooks.stores.path import AnyPath, StorePath

#: A file that is read.
OpenedFile: TypeAlias = FileIO | ObjectFile

_BINARY = getattr(os, "O_BINARY", 0)  # of Windows


def open_to_scan(path: AnyPath) -> OpenedFile:
    """Open ``path`` to be read from some place to the end. Raises OSError."""
    return path.open_ahead() if isinstance(path, StorePath) else open_regular(path)


def open_to_look(path: AnyPath) -> OpenedFile:
    """Open ``path`` to read a few bytes. Raises OSError."""
    return path.open() if isinstance(path, StorePath) else open_regular(path)


def read_places(path: AnyPath, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of ``path`` at ``places``, sorted, each where it begins and ends."""
    if isinstance(path, StorePath):
        return path.read_ranges(places)
    contents = []
    with open_regular(path) as file:
        for begin, end in places:
            file.seek(begin)
            contents.append(file.read(end - begin))
    return contents


def version_of(path: AnyPath) -> tuple[int, float] | None:
    """Return what differs once an object was written again; None if only its content tells."""
    return path.stat() if isinstance(path, StorePath) else None


def size_of(file: OpenedFile) -> int:
    """Return the size of ``file`` in bytes."""
    return file.seek(0, os.SEEK_END)


def open_regular(path: Path) -> FileIO:
    """Open the regular file ``path`` to be read. Raises OSError if it is anything else."""
    # Without blocking: a FIFO would wait for somebody to write.
    file = FileIO(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file
