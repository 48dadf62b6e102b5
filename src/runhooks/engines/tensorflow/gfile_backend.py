"""``GfileBackend``: a store in one of TensorFlow's own file systems, such as ``ram://``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from runhooks.contexts import contextmanager
from runhooks.stores import StoredObject, joined, scheme_of
from runhooks.stores.backend import Buffer

_gfile = tf.io.gfile

_NANOSECONDS = 1e-9


def open_with_gfile(url: str) -> GfileBackend | None:
    """Return the files below ``url``; None if TensorFlow does not know the scheme."""
    return GfileBackend(url) if scheme_of(url) in _gfile.get_registered_schemes() else None


class GfileBackend:
    """The files below ``url``, through ``tf.io.gfile``."""

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        path = self._path(key)
        with _as_of_a_disk():
            _gfile.makedirs(path.rpartition("/")[0])
            # ram:// appends to a file that is there, whatever the mode.
            to = f"{path}.new" if scheme_of(path) == "ram" else path
            with _gfile.GFile(to, "wb") as file:
                for piece in data:
                    file.write(bytes(piece))
            if to != path:
                _gfile.rename(to, path, overwrite=True)

    def create(self, key: str, data: bytes) -> None:
        with _as_of_a_disk():  # TensorFlow has no word for both at once
            if _gfile.exists(self._path(key)):
                raise FileExistsError(self._path(key))
        self.put(key, [data])

    def read(self, key: str, start: int, end: int | None) -> bytes:
        with _as_of_a_disk(), _gfile.GFile(self._path(key), "rb") as file:
            file.seek(start)
            content: bytes = file.read(-1 if end is None else end - start)
            return content

    def stat(self, key: str) -> StoredObject:
        path = self._path(key)
        with _as_of_a_disk():
            found = _gfile.stat(path)
        if found.is_directory:
            raise FileNotFoundError(path)
        return StoredObject(key, int(found.length), found.mtime_nsec * _NANOSECONDS)

    def objects(self, folder: str) -> Iterable[StoredObject]:
        with _as_of_a_disk():
            if not _gfile.isdir(self._path(folder)):
                return
            names = [name.rstrip("/") for name in _gfile.listdir(self._path(folder))]
        for name in names:
            key = f"{folder}/{name}" if folder else name
            if _gfile.isdir(self._path(key)):
                yield from self.objects(key)
            else:
                yield self.stat(key)

    def folders(self, folder: str) -> Iterable[str]:
        with _as_of_a_disk():
            if not _gfile.isdir(self._path(folder)):
                return []
            names = [name.rstrip("/") for name in _gfile.listdir(self._path(folder))]
            return [name for name in names if _gfile.isdir(f"{self._path(folder)}/{name}")]

    def delete(self, keys: Sequence[str]) -> None:
        with _as_of_a_disk():
            for key in keys:
                if _gfile.exists(self._path(key)):
                    _gfile.remove(self._path(key))

    def _path(self, key: str) -> str:
        return joined(self._url, key)


_ERRORS: tuple[tuple[Any, type[Exception]], ...] = (
    (tf.errors.NotFoundError, FileNotFoundError),
    (tf.errors.PermissionDeniedError, PermissionError),
    (tf.errors.UnauthenticatedError, PermissionError),
    (tf.errors.UnimplementedError, NotImplementedError),
    (tf.errors.AlreadyExistsError, FileExistsError),
    (tf.errors.InvalidArgumentError, ValueError),
    (tf.errors.FailedPreconditionError, ValueError),
    (tf.errors.OutOfRangeError, ValueError),
)


@contextmanager
def _as_of_a_disk() -> Iterator[None]:
    """Raise what a disk would raise instead of errors of TensorFlow that no repetition changes."""
    try:
        yield
    except tf.errors.OpError as error:
        for theirs, ours in _ERRORS:
            if isinstance(error, theirs):
                raise ours(error.message or theirs.__name__) from error
        raise
