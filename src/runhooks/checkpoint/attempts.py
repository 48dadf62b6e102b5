"""Writes the files of checkpoints to a disk or a store, and removes them.

    model.ckpt-1200/
      checkpoint.safetensors                  written last: it makes the checkpoint complete
      attempt-<process>-<number>-<rank>.safetensors   of ranks, or in a store: what each has written

A file on a disk is written under a temporary name, synced and renamed; an object of a store is
there as a whole. Each attempt to save a checkpoint has names of its own. In a store the last object
is created on condition that there is none: of several processes that save one step, one succeeds.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from runhooks import clock
from runhooks.checkpoint.files import printable
from runhooks.checkpoint.format import read_manifest
from runhooks.checkpoint.manifest import FileDigest
from runhooks.checkpoint.tensors import COMMIT, Encoding, sum_of
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores import RetryPolicy
from runhooks.stores.path import AnyPath, StorePath

_log = logging.getLogger("runhooks")

# No save takes that long; the clocks of two machines do not differ by as much either.
_DAY_SECS = 86_400
_ONCE = RetryPolicy(secs=0)  # what is not removed now is swept later

# A process number does not identify a process: containers give the same one after each start.
_TOKEN = os.urandom(4).hex()
_HOST = re.sub(r"[^\w.]", "_", platform.node())
_OWNED = re.compile(r"(\.tmp|attempt)-(?P<host>.*)-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-\d+-.*")
_numbers = count()


def new_attempt() -> str:
    """Return how the names of the files of a new attempt begin."""
    return f"attempt-{_owner()}"


def write_file(path: AnyPath, content: Encoding) -> FileDigest:
    """Write a file of a checkpoint; return when it is there to stay.

    Raises:
        OSError: That fails. Its ``filename`` is set.
    """
    if isinstance(path, StorePath):
        data, digest = _with_header(content)
        path.store.put(path.key, data)
        return digest
    temporary = path.parent.with_name(f".tmp-{_owner()}-{path.parent.name}")
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        digest = _write(temporary, content)
        _move(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # That of a full disk names no file.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    return digest


def commit(path: AnyPath, content: Encoding, replaces: bool) -> None:
    """Complete the checkpoint ``path``.

    Args:
        path: Its folder.
        content: Its last file.
        replaces: Whether it takes the place of one that is known; in a store there may be no other.

    Raises:
        FileExistsError: In a store, another process has saved it meanwhile.
        OSError: It cannot be written.
    """
    file = path / COMMIT
    superseded: Iterable[str] = ()
    if replaces:
        with suppress(NotFoundError, DataLossError, ValueError):
            superseded = read_manifest(path).files
    if replaces or not isinstance(file, StorePath):
        write_file(file, content)
        with suppress(OSError):  # what is left is swept later
            _remove([path / name for name in superseded])
        return
    try:
        file.store.create(file.key, b"".join(_with_header(content)[0]))
    except FileExistsError as error:
        raise FileExistsError(
            errno.EEXIST,
            "another process has saved this checkpoint meanwhile; let one process at a time "
            "save in a directory",
            str(path),
        ) from error


def abandon(path: AnyPath, attempt: str) -> None:
    """Remove the files of an attempt to save the checkpoint ``path``, as far as that can be."""
    with suppress(OSError):
        if isinstance(path, StorePath):
            store = path.store.with_retry(_ONCE)
            store.delete(it.key for it in store.objects(path.key) if f"/{attempt}-" in it.key)
        else:
            _remove(path.glob(f"{attempt}-*"))
            path.rmdir()


def discard(path: AnyPath) -> None:
    """Remove the checkpoint ``path``: half of one is never seen under its name.

    Raises:
        OSError: It cannot be removed. What is left of one on a disk after that, ``sweep`` removes.
    """
    if isinstance(path, StorePath):
        path.store.delete([(path / COMMIT).key])
        path.store.delete([it.key for it in path.store.objects(path.key)])
        return
    doomed = path.with_name(f".tmp-{_owner()}-{path.name}")
    path.rename(doomed)
    _remove([doomed])


def sweep(directory: AnyPath) -> None:
    """Remove what processes that were killed have left in ``directory``.

    What those of other hosts, which cannot be looked up, have left is removed a day later.
    """
    for path in _leftovers(directory):
        with suppress(FileNotFoundError):
            _log.info("removing %s: the process that was writing it is gone", printable(path))
            _remove([path])
            if isinstance(path, Path) and path.parent != directory:
                with suppress(OSError):  # there is something else in it
                    path.parent.rmdir()


def _leftovers(directory: AnyPath) -> Iterator[AnyPath]:
    if isinstance(directory, StorePath):
        below: Iterable[AnyPath] = directory.files()
    else:
        below = chain(directory.glob(".tmp-*"), directory.glob("*/attempt-*"))
    used: dict[AnyPath, Iterable[str] | None] = {}
    for path in below:
        owner = _OWNED.fullmatch(path.name)
        if owner is None or not _is_stale(path, owner["host"], int(owner["pid"]), owner["token"]):
            continue
        if path.parent != directory:
            if path.parent not in used:
                used[path.parent] = _files_of(path.parent)
            names = used[path.parent]
            if names is None or path.name in names:
                continue
        yield path


def _files_of(path: AnyPath) -> Iterable[str] | None:
    """The names of the files that the checkpoint ``path`` has; None if nobody can tell."""
    try:
        return read_manifest(path).files
    except NotFoundError:
        return ()
    except (DataLossError, ValueError):
        return None


def _is_stale(path: AnyPath, host: str, pid: int, token: str) -> bool:
    if host == _HOST and (token != _TOKEN if pid == os.getpid() else not _is_alive(pid)):
        return True
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


def _remove(paths: Iterable[AnyPath]) -> None:
    for path in paths:
        if isinstance(path, StorePath):
            path.store.delete([path.key])
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _owner() -> str:
    return f"{_HOST}-{os.getpid()}-{_TOKEN}-{next(_numbers)}"


def _with_header(content: Encoding) -> tuple[list[Any], FileDigest]:
    pieces = list(content.pieces())  # views of arrays; what fails is sent again
    header, crc = content.header(map(sum_of, pieces))
    buffers = [header, *chain.from_iterable(pieces)]
    return buffers, FileDigest(sum(map(len, buffers)), crc)


def _write(path: Path, content: Encoding) -> FileDigest:
    sums = []
    begun = size = content.header_bytes
    with path.open("xb") as file:
        file.write(bytes(size))  # the header has the checksums of what follows
        for piece in content.pieces():
            file.writelines(piece)
            sums.append(sum_of(piece))
            size += sum(map(len, piece))
            file.flush()
            _begin_writing(file.fileno(), begun, size)
            begun = size
        file.seek(0)
        header, crc = content.header(sums)
        file.write(header)
        file.flush()
        os.fsync(file.fileno())
    return FileDigest(size, crc)


def _begin_writing(descriptor: int, start: int, end: int) -> None:
    # So the disk works while the rest is being copied to the page cache. On Linux the advice that
    # nobody is going to read these pages starts their writing.
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def _move(temporary: Path, path: Path) -> None:
    while True:
        path.parent.mkdir(exist_ok=True)
        try:
            temporary.replace(path)
        except FileNotFoundError:  # another process has just removed the checkpoint
            if not temporary.exists():
                raise
        else:
            break
    _sync(path.parent)
    _sync(path.parent.parent)


def _sync(folder: Path) -> None:
    """Wait until the names of the files in ``folder`` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
