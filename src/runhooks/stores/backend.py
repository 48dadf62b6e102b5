"""``Backend``: the requests that a store answers, each tried once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: What is written and read: bytes, a memoryview of bytes, or a flat array of bytes.
Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


class StoredObject(NamedTuple):
    """An object in a store.

    Attributes:
        key: Its key, relative to the URL of the store.
        size: Its size in bytes.
        modified: When it was written by the clock of the store, in seconds since the epoch.
    """

    key: str
    size: int
    modified: float


class Backend(Protocol):
    """The objects below one URL. Errors are those of the library beneath."""

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        """Create or replace an object, whole or not at all."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Create an object. Raises FileExistsError if one is there."""
        ...

    def read(self, key: str, start: int, end: int | None) -> bytes | memoryview:
        """Return the bytes from ``start`` to ``end``, at least one; None: to the end."""
        ...

    def stat(self, key: str) -> StoredObject:
        """Return the size and the time of an object."""
        ...

    def objects(self, folder: str) -> Iterable[StoredObject]:
        """Return all objects whose keys begin with ``folder/``; with ``""``, all."""
        ...

    def folders(self, folder: str) -> Iterable[str]:
        """Return the names that stand before a ``/`` in the keys below ``folder``."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, those that are there."""
        ...
