"""Writes files and folders that are complete on the disk, or absent."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks import clock
from runhooks.checkpoint.manifest import FileDigest
from runhooks.checkpoint.reading import printable
from runhooks.contexts import contextmanager

_log = logging.getLogger("runhooks")

_DAY_SECS = 86_400
_PART_BYTES = 4 << 20
# A process number does not identify a process: containers give the same one after each start.
_TOKEN = os.urandom(4).hex()
_TEMPORARY = re.compile(r"\.tmp-(?P<host>.+)-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-\d+-")
_numbers = itertools.count()


def write_file(path: Path, pieces: Iterable[bytes | NDArray[np.uint8]]) -> FileDigest:
    """Write ``pieces`` to the new file ``path`` and wait until it is on the disk.

    Raises:
        OSError: That fails. Its ``filename`` is set.
    """
    size = crc = begun = 0
    try:
        with path.open("xb") as file:
            for part in _parts(pieces):
                file.write(part)  # type: ignore[arg-type] # arrays are buffers, from 3.12 in types
                size += len(part)
                crc = google_crc32c.extend(crc, part)
                if size - begun >= _PART_BYTES:
                    _begin_writing(file.fileno(), begun, size)
                    begun = size
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # The error of a full disk does not name a file.
        error.filename = error.filename or str(path)
        raise
    return FileDigest(size, crc)


def _begin_writing(descriptor: int, start: int, end: int) -> None:
    # So the disk works while the rest is being copied to the page cache. On Linux the advice that
    # nobody is going to read these pages starts their writing.
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def _parts(
    pieces: Iterable[bytes | NDArray[np.uint8]],
) -> Iterator[bytes | NDArray[np.uint8]]:
    # A checksum is computed with the interpreter locked, for 0.3 ms a part. Smaller ones would wait
    # for the interpreter too often when the training loop is all Python.
    for piece in pieces:
        for start in range(0, len(piece), _PART_BYTES):
            yield piece[start : start + _PART_BYTES]


@contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Make a temporary folder to write into; it becomes ``path`` when the block succeeds.

    What was at ``path`` is moved away first. If the second of the two moves fails, or the process
    is killed before it, the old folder is left as ``<path>.replaced``. If anything raises, the
    temporary folder is removed.
    """
    folder = make_folder(path)
    try:
        yield folder
        move(folder, path)
    except BaseException:
        abandon(folder)
        raise


def make_folder(path: Path) -> Path:
    """Return a new temporary folder beside ``path``, which ``sweep`` removes if nobody does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = _temporary(path)
    folder.mkdir()
    return folder


def move(folder: Path, path: Path) -> None:
    """Give the temporary ``folder``, once it is on the disk, its name ``path``."""
    sync(folder)
    _move(folder, path)


def abandon(folder: Path) -> None:
    """Remove the temporary ``folder``, as far as that can be done."""
    shutil.rmtree(folder, ignore_errors=True)


def discard(path: Path) -> None:
    """Remove the folder ``path``, in one move: half a folder is never seen under its name.

    Raises:
        OSError: It cannot be moved. If it cannot be removed after that, ``sweep`` tries again.
    """
    doomed = _temporary(path)
    path.rename(doomed)
    _remove(doomed)


def sweep(folder: Path) -> None:
    """Remove the temporary folders in ``folder`` whose processes were killed."""
    for path in folder.glob(".tmp-*"):
        match = _TEMPORARY.match(path.name)
        if match and _is_stale(path, **match.groupdict()):
            _log.info("removing %s: the process that was writing it is gone", printable(path))
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink():  # to a checkpoint that is not ours to remove
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _move(folder: Path, path: Path) -> None:
    replaced = path.with_name(f"{path.name}.replaced")
    while not _moved(folder, path):
        # Another process may be saving here, too: what it has moved is no longer there.
        with suppress(FileNotFoundError):
            discard(replaced)
        with suppress(FileNotFoundError):
            _moved(path, replaced)
    sync(path.parent)
    with suppress(FileNotFoundError):
        discard(replaced)


def _moved(folder: Path, path: Path) -> bool:
    """Move ``folder`` to ``path``, unless a folder that is not empty is there."""
    try:
        folder.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _temporary(path: Path) -> Path:
    owner = f"{platform.node()}-{os.getpid()}-{_TOKEN}"
    return path.with_name(f".tmp-{owner}-{next(_numbers)}-{path.name}")


def _is_stale(path: Path, host: str, pid: str, token: str) -> bool:
    if host == platform.node():
        return token != _TOKEN if int(pid) == os.getpid() else not _is_alive(int(pid))
    # Processes of another host cannot be looked up, but no checkpoint takes a day to write.
    try:
        return clock.wall() - path.stat().st_mtime > _DAY_SECS
    except FileNotFoundError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def sync(folder: Path) -> None:
    """Wait until the names of the files in ``folder`` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
