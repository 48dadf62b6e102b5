"""Writes the files of checkpoints to a disk or a store, and removes them.

    checkpoint.safetensors                          written last: it completes the checkpoint
    attempt-<process>-<number>-<rank>.safetensors   of ranks, or in a store

On a disk, the last file has a name of its attempt until it is synced.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count, groupby
from pathlib import Path
from typing import Any, BinaryIO

from runhooks import clock
from runhooks.checkpoint.files import printable
from runhooks.checkpoint.format import read_manifest
from runhooks.checkpoint.lock import is_alive
from runhooks.checkpoint.manifest import FileDigest, is_shard
from runhooks.checkpoint.tensors import COMMIT, PIECE_BYTES, Encoding, sum_of
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.path import AnyPath, StorePath

_log = logging.getLogger("runhooks")

_DAY_SECS = 86_400
_PAGE_BYTES = 4096

# Containers give a process the same number after each start.
_TOKEN = os.urandom(4).hex()
_HOST = re.sub(r"[^\w.]", "_", platform.node(), flags=re.ASCII)
_OWNED = re.compile(r"attempt-(?P<host>.*)-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-\d+-.*")
_numbers = count()


def new_attempt() -> str:
    """Return how the names of the files of a new attempt begin."""
    return f"attempt-{_HOST}-{os.getpid()}-{_TOKEN}-{next(_numbers)}"


def write_file(path: AnyPath, content: Encoding) -> FileDigest:
    """Write a file of an attempt, which is there to stay when this returns."""
    if isinstance(path, StorePath):
        data, digest = _with_header(content)
        path.store.put(path.key, data)
        return digest
    digest = _write(path, content)
    _sync(path.parent)
    return digest


def commit(path: AnyPath, content: Encoding, replaces: bool) -> None:
    """Complete a checkpoint with its last file.

    In a store, FileExistsError is raised if there is another one, unless it ``replaces`` that.
    """
    superseded = (_files_of(path) or ()) if replaces else ()
    file = path / COMMIT
    if isinstance(file, Path):
        _put_in_place(file, content)
    elif replaces:
        write_file(file, content)
    else:
        try:
            file.store.create(file.key, b"".join(_with_header(content)[0]))
        except FileExistsError as error:
            raise FileExistsError(
                errno.EEXIST,
                "another process has saved this checkpoint meanwhile; let one process at a time "
                "save in a directory",
                str(path),
            ) from error
    if superseded:
        with suppress(OSError):  # what is left is swept later
            _remove(path, superseded)


def abandon(path: AnyPath, attempt: str) -> None:
    with suppress(OSError):
        _remove(path, [it.name for it in path.iterdir() if it.name.startswith(f"{attempt}-")])


def discard(path: AnyPath) -> None:
    """Remove a checkpoint, absent at once, or the link to it; what no save has written stays."""
    if isinstance(path, Path) and path.is_symlink():
        path.unlink()
        return
    with suppress(NotADirectoryError):
        _remove(path, [COMMIT])
    with suppress(OSError):  # what is left is swept later
        _remove(path, [it.name for it in path.iterdir() if is_shard(it.name)])


def sweep(directory: AnyPath) -> None:
    """Remove what killed processes have left; of other hosts, after a day."""
    below: Iterable[AnyPath] = (
        directory.files() if isinstance(directory, StorePath) else directory.glob("*/attempt-*")
    )
    stale = [it for it in below if _is_stale(it)]
    for folder, paths in groupby(stale, lambda it: it.parent):
        used = _files_of(folder)
        left = [] if used is None else [it.name for it in paths if it.name not in used]
        if left:
            shown = printable(folder)
            _log.info("removing %s of %s: the process that wrote it is gone", left, shown)
            _remove(folder, left)


def _files_of(path: AnyPath) -> Iterable[str] | None:
    """The files of a checkpoint; None if nobody can tell."""
    try:
        return read_manifest(path).files
    except NotFoundError:
        return ()
    except (DataLossError, ValueError):
        return None


def _is_stale(path: AnyPath) -> bool:
    owner = _OWNED.fullmatch(path.name)
    if owner is None:
        return False
    pid = int(owner["pid"])
    if owner["host"] == _HOST and (
        owner["token"] != _TOKEN if pid == os.getpid() else not is_alive(pid)
    ):
        return True
    try:
        return clock.wall() - path.stat().st_mtime > _DAY_SECS
    except FileNotFoundError:
        return False


def _remove(folder: AnyPath, names: Iterable[str]) -> None:
    if isinstance(folder, StorePath):
        folder.store.delete([(folder / name).key for name in names])
        return
    for name in names:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _put_in_place(file: Path, content: Encoding) -> None:
    attempt = new_attempt()
    written = file.with_name(f"{attempt}-{file.name}")
    try:
        _write(written, content)
        written.replace(file)
    except BaseException as error:
        abandon(file.parent, attempt)
        if isinstance(error, OSError) and error.filename == str(written):
            error.filename = str(file)
        raise
    _sync(file.parent)
    _sync(file.parent.parent)


def _with_header(content: Encoding) -> tuple[list[Any], FileDigest]:
    pieces = list(content.pieces())  # views of arrays; what fails is sent again
    header, crc = content.header(map(sum_of, pieces))
    buffers = [header, *chain.from_iterable(pieces)]
    return buffers, FileDigest(sum(map(len, buffers)), crc)


def _write(path: Path, content: Encoding) -> FileDigest:
    sums = []
    size = content.header_bytes
    # Not the pages of the header, which change again.
    begun = -(-size // _PAGE_BYTES) * _PAGE_BYTES
    try:
        with _created(path) as file:
            file.seek(size)  # the header has the checksums of what follows
            for piece in content.pieces():
                if size - begun > PIECE_BYTES // 2:
                    file.flush()
                    end = size // _PAGE_BYTES * _PAGE_BYTES
                    _begin_writing(file.fileno(), begun, end)
                    begun = end
                for buffer in piece:
                    file.write(buffer)
                sums.append(sum_of(piece))
                size += sum(map(len, piece))
            file.seek(0)
            header, crc = content.header(sums)
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is None:  # as of a full disk
            error.filename = str(path)
        raise
    return FileDigest(size, crc)


def _created(path: Path) -> BinaryIO:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # just swept
            return path.open("xb")


def _begin_writing(descriptor: int, start: int, end: int) -> None:
    # On Linux, this advice makes the disk begin at once.
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
