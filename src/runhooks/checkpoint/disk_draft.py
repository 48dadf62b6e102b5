"""``DiskDraft``: a checkpoint that is being written in a temporary folder."""

from __future__ import annotations

from pathlib import Path

from runhooks.checkpoint import staging
from runhooks.checkpoint.draft import Draft, Pieces
from runhooks.checkpoint.files import read_file
from runhooks.checkpoint.format import check_free, write_manifest
from runhooks.checkpoint.manifest import FileDigest, Manifest


class DiskDraft(Draft):
    """The temporary folder ``folder``, which becomes the checkpoint ``path``."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self.name = folder.name

    @classmethod
    def begin(cls, path: Path) -> DiskDraft:
        """Make the folder. Raises FileExistsError if ``path`` is not a checkpoint's."""
        check_free(path)
        return cls(path, staging.make_folder(path))

    def write(self, name: str, pieces: Pieces) -> FileDigest:
        return staging.write_file(self._folder / name, pieces)

    def read(self, name: str, expected: FileDigest) -> bytes:
        return read_file(self._folder, name, expected)

    def sync(self) -> None:
        staging.sync(self._folder)

    def commit(self, manifest: Manifest, replaces: bool) -> None:
        write_manifest(self._folder, manifest)
        staging.move(self._folder, self._path)

    def abandon(self) -> None:
        staging.abandon(self._folder)
