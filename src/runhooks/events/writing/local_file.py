"""Files on a disk of this machine: their paths, and whether somebody has deleted them."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path
from typing import Any

from runhooks.events.place import place
from runhooks.stores import is_url


def local_path(**named: Any) -> str:
    """Return the path that is the one argument, as ``place`` does.

    Raises:
        TypeError: If it is not a path; the message names the argument.
        ValueError: If it is empty or the URL of a store.
    """
    (name,) = named
    path = place(**named)
    if is_url(path):
        raise ValueError(
            f"{name} must be a path on this machine, got {path!r}: mount it, or copy files there"
        )
    return path


def is_elsewhere(file: FileIO, path: Path) -> bool:
    """Return whether ``file``, opened at ``path``, was deleted or moved."""
    return is_other(os.fstat(file.fileno()), path)


def is_other(status: os.stat_result, path: Path) -> bool:
    """Return whether the file at ``path`` is not, or no longer, the one with this ``status``."""
    try:
        return not os.path.samestat(status, path.stat())
    except OSError:
        return True


def refuse_deleted(file: FileIO, path: Path) -> None:
    """Raise FileNotFoundError if ``file``, opened at ``path``, was deleted."""
    # The first look is cheap, but some file systems count no links at all.
    status = os.fstat(file.fileno())
    if not status.st_nlink and is_other(status, path):
        raise deleted(path)


def deleted(path: Path) -> FileNotFoundError:
    """Return the error of writing to a file that was deleted."""
    reason = (
        "deleted while it was written: the writer's reopen() continues in a new file; a "
        "SummaryWriter of runhooks.tensorboard does so after close()"
    )
    return FileNotFoundError(errno.ENOENT, reason, str(path))
