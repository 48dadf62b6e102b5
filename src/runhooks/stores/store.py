"""``Store``: the objects below one URL."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from runhooks import arguments
from runhooks.stores.backend import AnyResult, Backend, Buffer, StoredObject, forget_file_system
from runhooks.stores.errors import as_os_error, lacks_credentials
from runhooks.stores.interruption import reading_threads
from runhooks.stores.retry import RetryPolicy, ask, default_policy
from runhooks.stores.urls import is_url, joined, normal, top_of

AnyArgument = TypeVar("AnyArgument")

# What is read in one request: an eighth of what is wanted, within these limits.
_LEAST_RANGE_BYTES, _MOST_RANGE_BYTES = 8 << 20, 64 << 20
_MOST_AT_ONCE = 8


def open_store(url: str | os.PathLike[str], retry: RetryPolicy | None = None) -> Store:
    """Return the store of the objects below ``url``. No request is made yet.

    Args:
        url: Such as ``s3://bucket/run``, ``gs://``, ``az://`` or ``memory://``.
        retry: How long requests are repeated. None: as ``set_retry_policy`` says, else 300 s, or
            10 s until the store has answered for the first time in this process.

    Raises:
        ImportError: The library for the scheme is not installed.
        ValueError: ``url`` is a path, or its scheme is unknown.
        OSError: The library's configuration is wrong, such as a missing profile.
    """
    if not is_url(url):
        raise ValueError(f"url must begin with a scheme such as s3://, got {os.fspath(url)!r}")
    text = normal(os.fspath(url))
    return Store(text, default_policy() if retry is None else retry)


def open_top(url: str) -> tuple[Store, str]:
    """Return the store of the bucket or host of ``url``, and its key there."""
    top, key = top_of(normal(url))
    return Store(top, default_policy()), key


class Store:
    """The objects below one URL, by keys relative to it, with ``/`` between their parts.

    May be used in several threads, and in a forked child. Failures raise the OSError that a disk
    would raise, with the URL as its ``filename``.
    """

    def __init__(self, url: str, retry: RetryPolicy) -> None:
        self.url = url
        self._retry = retry
        self._open()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def with_retry(self, retry: RetryPolicy) -> Store:
        """Return the same store with another policy."""
        other = copy.copy(self)
        other._retry = retry
        return other

    def url_of(self, key: str) -> str:
        return joined(self.url, key)

    def put(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Create or replace the object ``key``, completely or not at all; a large one goes in parts."""
        pieces = [data] if not isinstance(data, Sequence) or isinstance(data, _BYTES) else data
        self._call(key, lambda backend: backend.put(key, pieces), sum(map(len, pieces)))

    def create(self, key: str, data: bytes) -> None:
        """Create the object ``key``; of several processes at the same time, one succeeds.

        ``data`` must differ from theirs: where an answer was lost, it tells whose the object is.
        Raises FileExistsError if another is there.
        """
        try:
            self._call(key, lambda backend: backend.create(key, data))
        except FileExistsError:
            # An earlier try may have succeeded, and its answer have been lost.
            if self.stat(key).size != len(data) or self.read(key) != data:
                raise

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the content of the object ``key``, or its bytes from ``start`` to ``end``."""
        if end is not None:
            return self._read_range(key, start, end)
        return self._call(key, lambda backend: backend.read(key, start, None))

    def read_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of the object ``key`` between several starts and ends, in parallel."""
        return _together(lambda where: self._read_range(key, *where), list(ranges))

    def read_into(self, key: str, into: memoryview, start: int = 0) -> None:
        """Fill ``into`` with the bytes of the object ``key`` from ``start`` on."""
        into = into.cast("B")
        size = len(into)
        part = min(max(_LEAST_RANGE_BYTES, -(-size // _MOST_AT_ONCE)), _MOST_RANGE_BYTES)

        def fill(first: int) -> None:
            last = min(first + part, size)
            into[first:last] = self._read_range(key, start + first, start + last)

        _together(fill, range(0, size, part))

    def stat(self, key: str) -> StoredObject:
        return self._call(key, lambda backend: backend.stat(key))

    def objects(self, folder: str = "") -> list[StoredObject]:
        """Return the objects whose keys begin with ``folder/``, by key; all of them for ``""``."""
        found = self._call(folder, lambda backend: backend.objects(folder))
        # Other programs mark folders by empty objects.
        below = f"{folder}/" if folder else ""
        names = ((it, it.key.removeprefix(below)) for it in found if it.key.startswith(below))
        return sorted(it for it, name in names if name and not name.endswith("/"))

    def folders(self, folder: str = "") -> list[str]:
        """Return the names directly below ``folder`` that have objects below them, sorted."""
        return sorted(self._call(folder, lambda backend: backend.folders(folder)))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects ``keys``; a missing one is no error."""
        arguments.given(keys=keys)
        if listed := [keys] if isinstance(keys, str) else list(keys):
            self._call("", lambda backend: backend.delete(listed))

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        content = self._call(key, lambda backend: backend.read(key, start, end), end - start)
        if len(content) != end - start:
            raise OSError(errno.EIO, f"it ends before byte {end}", self.url_of(key))
        return content

    def _open(self) -> None:
        try:
            self._backend = Backend(self.url)
        except (ImportError, ValueError):
            raise
        except Exception as error:
            raise as_os_error(error, self.url) from error
        self._opened_by: int | None = os.getpid()  # None: it is to be opened anew

    def _call(
        self, key: str, request: Callable[[Backend], AnyResult], nbytes: int = 0
    ) -> AnyResult:
        if self._opened_by != os.getpid():  # a forked child has no threads that do the work
            self._open()
        url, backend = self.url_of(key), self._backend
        try:
            return ask(lambda: request(backend), url, self._retry, nbytes)
        except PermissionError as error:
            if error.__cause__ is not None and lacks_credentials(error.__cause__):
                self._opened_by = None  # there may be some at the next request
                forget_file_system(self.url)
            raise


_BYTES = (bytes, bytearray, memoryview)


def _together(
    act: Callable[[AnyArgument], AnyResult], items: Sequence[AnyArgument]
) -> list[AnyResult]:
    if len(items) < 2:
        return [act(it) for it in items]
    with reading_threads(_MOST_AT_ONCE) as threads:
        return list(threads.map(act, items))
