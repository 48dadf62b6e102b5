"""Opens files that anybody may have made: regular files, and nothing that a link leads to."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from runhooks.contexts import contextmanager


def size_of(path: Path) -> int:
    """Return the size of the regular file ``path`` in bytes.

    Raises:
        ValueError: It is not a regular file.
        OSError: It cannot be looked at.
    """
    return _size(os.lstat(path))


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open the regular file ``path`` for reading; give it and its size in bytes.

    Raises:
        ValueError: It is not a regular file.
        OSError: It cannot be opened.
    """
    # Opening a device may have an effect, and opening a FIFO waits for a writer. What is a regular
    # file now may be something else a moment later: hence the flags, and the second look.
    size_of(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("it is not a regular file") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file, _size(os.fstat(descriptor))


def printable(text: object) -> str:
    """Return ``str(text)`` with escapes for what a terminal would not print."""
    shown = str(text)
    return shown if shown.isprintable() else repr(shown)[1:-1]


def _size(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    return status.st_size
