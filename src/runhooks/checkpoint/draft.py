"""``Draft``: a checkpoint that is being written, and counts for nothing until it is complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from runhooks.checkpoint.manifest import FileDigest, Manifest

Pieces = Iterable[bytes | NDArray[np.uint8]]


class Draft(ABC):
    """A checkpoint that is being written, on a disk or in a store.

    Attributes:
        name: What other ranks join it by.
        folder: What precedes the names of its files in the manifest.
    """

    name: str
    folder: str = ""

    @abstractmethod
    def write(self, name: str, pieces: Pieces) -> FileDigest:
        """Write a file; return when its content is there to stay. Raises OSError."""

    @abstractmethod
    def read(self, name: str, expected: FileDigest) -> bytes:
        """Return the content of a file that any rank has written. Raises DataLossError."""

    @abstractmethod
    def sync(self) -> None:
        """Return when the names of the files are there to stay, too."""

    @abstractmethod
    def commit(self, manifest: Manifest, replaces: bool) -> None:
        """Complete the checkpoint.

        Args:
            manifest: What it has.
            replaces: Whether it takes the place of one that is known to be there.

        Raises:
            FileExistsError: In a store, another process has saved it meanwhile.
            OSError: It cannot be written.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written, as far as that can be done."""
