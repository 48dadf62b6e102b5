"""Where runs are: a path, or the URL of a folder in a store."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path
from typing import Any

from runhooks import arguments
from runhooks.ranks import current_group
from runhooks.stores import is_url, joined, normal, without_file_scheme


def place(**named: Any) -> str:
    """Return the path or URL that is the one argument, ``~`` and ``file://`` expanded.

    Raises TypeError if it is neither, ValueError if it is empty or has a password.
    """
    (given,) = named.values()
    arguments.given(**named)
    arguments.directory(**named)
    text = os.fsdecode(without_file_scheme(os.fsdecode(given)))
    return os.path.expanduser(text)  # noqa: PTH111 - a "~" that names nobody is a name


def local_path(**named: Any) -> str:
    """Return the path that is the one argument, as ``place``; raise ValueError for a URL."""
    (name,) = named
    path = place(**named)
    if is_url(path):
        raise ValueError(
            f"{name} must be a path on this machine, got {path!r}: mount it, or copy files there"
        )
    return path


def identity(place: str) -> str:
    """Return the same text for all spellings of one place."""
    return normal(place) if is_url(place) else os.path.realpath(place)


def inside(place: str | os.PathLike[str], *names: str) -> str:
    # A Path would turn gs:// into gs:/.
    text = os.fspath(place)
    return joined(text, *names) if is_url(text) else os.path.join(text, *names)  # noqa: PTH118


def rank_folder(directory: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return ``directory`` on the chief, and its folder ``rank-1`` on rank 1.

    One that has the name of the rank already is returned as it is.
    """
    group, own = current_group(), f"rank-{current_group().rank}"
    is_own = os.path.basename(os.fsdecode(directory).rstrip("/")) == own  # noqa: PTH119 - or a URL
    return directory if group.is_chief or is_own else inside(directory, own)


def is_elsewhere(file: FileIO, path: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return True


def refuse_deleted(file: FileIO, path: Path) -> None:
    # The first look is cheap, but some file systems count no links at all.
    if not os.fstat(file.fileno()).st_nlink and is_elsewhere(file, path):
        reason = (
            "deleted while it was written: the writer's reopen() continues in a new file; a "
            "SummaryWriter of runhooks.tensorboard does so after close()"
        )
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
