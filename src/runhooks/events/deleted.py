"""A file that somebody deletes while it is written: what goes there is lost, and nobody told."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path


def is_elsewhere(file: FileIO, path: Path) -> bool:
    """Return whether ``file``, opened at ``path``, was deleted or moved."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return True


def refuse_deleted(file: FileIO, path: Path) -> None:
    """Raise FileNotFoundError if ``file``, opened at ``path``, was deleted."""
    # The first look is cheap, but some file systems count no links at all.
    if not os.fstat(file.fileno()).st_nlink and is_elsewhere(file, path):
        reason = "deleted while it was written: reopen() goes on in a new file"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
