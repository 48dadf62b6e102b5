"""Files that anybody may have made, on a disk or in a store."""

from __future__ import annotations

import errno
import math
import mmap
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from runhooks.stores import RetryPolicy, default_policy, is_url, without_file_scheme
from runhooks.stores.path import AnyPath, StorePath

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_AHEAD_BYTES = 8 << 20


def place_of(place: str | os.PathLike[str]) -> AnyPath:
    """Return a path or URL as an object; ``file://`` is a path, ``~`` expanded."""
    plain = without_file_scheme(place)
    if is_url(plain):
        return _stored(os.fspath(plain), default_policy()).unlisted()
    return Path(os.path.expanduser(plain))  # noqa: PTH111 - a "~" that names nobody is a name


def followed(path: AnyPath) -> AnyPath:
    return path.resolve() if isinstance(path, Path) and path.is_symlink() else path


# No other machine writes to these file systems.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})


@lru_cache(maxsize=64)  # connections are kept
def _stored(url: str, policy: RetryPolicy) -> StorePath:
    return StorePath(url)


def size_of(path: AnyPath) -> int:
    """Return the size in bytes; ValueError if it is not a regular file."""
    return path.stat().st_size if isinstance(path, StorePath) else _size(os.lstat(path))


def sizes_below(path: AnyPath) -> Callable[[str], int]:
    """Return ``size_of`` for files in a folder by name."""
    if isinstance(path, StorePath):
        path = path.unlisted()
        path.files()  # one request for all
    return lambda name: size_of(path / name)


def size_below(path: AnyPath) -> int:
    """Return the size in bytes; links are not followed."""
    if isinstance(path, StorePath):
        return sum(it.size for it in path.store.objects(path.key))
    return sum(
        size_below(it) if it.is_dir() and not it.is_symlink() else it.lstat().st_size
        for it in path.iterdir()
    )


def modified(path: AnyPath) -> float:
    """Return when a folder last changed, in seconds since the epoch."""
    if isinstance(path, StorePath):
        return max((it.modified for it in path.store.objects(path.key)), default=0.0)
    return os.lstat(path).st_mtime


def read_into(path: AnyPath, start: int, into: NDArray[np.uint8]) -> None:
    if isinstance(path, StorePath):
        path.store.read_into(path.key, into.data, start)
        return
    with opened(path) as (file, _):
        file.seek(start)
        if file.readinto(into.data) != len(into):
            raise ValueError("it is cut short")


def mapped(file: BufferedReader) -> NDArray[np.uint8] | None:
    """Return the memory that an open file is mapped into; writing to it changes no file.

    None if it does not fit, or another machine could cut it short and so end the process.
    """
    try:
        if not _is_local(os.fstat(file.fileno()).st_dev):
            return None
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    except OSError:  # of a store, too
        return None


@lru_cache
def _is_local(device: int) -> bool:
    try:
        mounted = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    number = f" {os.major(device)}:{os.minor(device)} "
    return any(number in it and it.partition(" - ")[2].split()[0] in _LOCAL for it in mounted)


@contextmanager
def opened(path: AnyPath, ahead: bool = True) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file; give it and its size. ``ahead``: it is read to its end."""
    if isinstance(path, StorePath):
        size = path.stat().st_size
        with path.open(_AHEAD_BYTES if ahead else 0) as stored:
            yield stored, size
        return
    # Opening a device may have an effect, and a FIFO waits; the file may be replaced meanwhile.
    size_of(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("it is not a regular file") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file, _size(os.fstat(descriptor))


class Shared(Generic[_Key, _Value]):
    """What several threads want by key, made once each; the ``most`` last are kept."""

    def __init__(self, make: Callable[[_Key], _Value], most: float = math.inf) -> None:
        self._make = make
        self._most = most
        self._made: dict[_Key, _Value] = {}
        self._making: dict[_Key, Future[_Value]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, key: _Key) -> _Value:
        try:
            return self._made[key]
        except KeyError:
            pass
        with self._lock:
            if key in self._made:
                return self._made[key]
            making = self._making.get(key)
            if is_new := making is None:
                making = self._making[key] = Future()
        if not is_new:
            return making.result()
        try:
            value = self._make(key)
        except BaseException as error:
            with self._lock:
                del self._making[key]  # what failed is tried again
            making.set_exception(error)
            raise
        with self._lock:
            self._made[key] = value
            del self._making[key]
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        making.set_result(value)
        return value


@contextmanager
def local_copy(path: AnyPath) -> Iterator[Path]:
    if not isinstance(path, StorePath):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        copy.write_bytes(path.read_bytes())
        yield copy


def printable(text: object) -> str:
    shown = str(text)
    return shown if shown.isprintable() else repr(shown)[1:-1]


def _size(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    return status.st_size
