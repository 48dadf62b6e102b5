"""Checkpoints that are being written to a disk or a store, and their removal.

    model.ckpt-1200/
      attempt-<16 hexadecimal digits>/   the files of one attempt to save it
      manifest.json                      names the attempt that has succeeded

Each attempt has a folder of its own. The manifest is created last, on condition that there is none:
of several processes that save one step, one succeeds.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

import google_crc32c

from runhooks import clock
from runhooks.checkpoint import staging
from runhooks.checkpoint.arrays import read_file
from runhooks.checkpoint.format import check_free, manifest_bytes, read_manifest, write_manifest
from runhooks.checkpoint.lock import check_claim
from runhooks.checkpoint.manifest import MANIFEST, Draft, FileDigest, Manifest, Pieces
from runhooks.checkpoint.reading import printable
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores import RetryPolicy
from runhooks.stores.path import AnyPath, StorePath


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


_log = logging.getLogger("runhooks")

# No save takes that long; the clocks of two machines do not differ by as much either.
_DAY_SECS = 86_400
# What is not removed now is swept later.
_ONCE = RetryPolicy(secs=0)
_OF_ATTEMPT = re.compile(r"(?P<checkpoint>[^/]+)/(?P<folder>attempt-[0-9a-f]{16}/)[^/]+")


class StoreDraft(Draft):
    """The attempt ``name`` to save the checkpoint ``path``."""

    def __init__(self, path: StorePath, name: str) -> None:
        self._path = path
        self.name = name
        self.folder = f"{name}/"
        self._may_be_complete = False

    @classmethod
    def begin(cls, path: StorePath) -> StoreDraft:
        """Begin an attempt."""
        return cls(path, f"attempt-{os.urandom(8).hex()}")

    def write(self, name: str, pieces: Pieces) -> FileDigest:
        parts = list(pieces)  # views of arrays; what fails is sent again
        size = crc = 0
        for part in parts:
            size += len(part)
            crc = google_crc32c.extend(crc, part)
        self._path.store.put(self._key(name), parts)
        return FileDigest(size, crc)

    def read(self, name: str, expected: FileDigest) -> bytes:
        return read_file(self._path, self.folder + name, expected)

    def sync(self) -> None:
        """Do nothing: what a store has acknowledged is there to stay."""

    def commit(self, manifest: Manifest, replaces: bool) -> None:
        check_claim(self._path.parent)
        store, key, data = self._path.store, (self._path / MANIFEST).key, manifest_bytes(manifest)
        superseded = _files_of(self._path) if replaces else []
        self._may_be_complete = True
        if replaces:
            store.put(key, data)
            with suppress(OSError):  # what is left is swept later
                store.delete(superseded)
            return
        try:
            store.create(key, data)
        except FileExistsError as error:
            self._may_be_complete = False
            raise FileExistsError(
                errno.EEXIST,
                "another process has saved this checkpoint meanwhile; let one process at a time "
                "save in a directory",
                str(self._path),
            ) from error

    def abandon(self) -> None:
        # Where the answer to the last request is missing, the checkpoint may be complete.
        if not self._may_be_complete:
            with suppress(OSError):
                store = self._path.store.with_retry(_ONCE)
                store.delete(it.key for it in store.objects(self._key("")))

    def _key(self, name: str) -> str:
        return f"{self._path.key}/{self.folder}{name}".rstrip("/")


def discard_stored(path: StorePath) -> None:
    """Remove the checkpoint ``path``, its manifest first: half of one is never seen.

    Raises:
        OSError: It cannot be removed.
    """
    store = path.store
    store.delete([(path / MANIFEST).key])
    store.delete([it.key for it in store.objects(path.key)])


def sweep_store(directory: StorePath) -> None:
    """Remove what processes that were killed have left of attempts, a day later."""
    written: dict[tuple[str, str], list[str]] = {}
    newest: dict[tuple[str, str], float] = {}
    for it in directory.store.objects(directory.key):
        name = it.key[len(directory.key) :].lstrip("/")
        if found := _OF_ATTEMPT.fullmatch(name):
            attempt = found["checkpoint"], found["folder"]
            written.setdefault(attempt, []).append(it.key)
            newest[attempt] = max(newest.get(attempt, 0), it.modified)
    for (checkpoint, folder), keys in written.items():
        is_old = newest[checkpoint, folder] < clock.wall() - _DAY_SECS
        if is_old and not _is_in_use(directory / checkpoint, folder):
            shown = printable(directory / checkpoint / folder)
            _log.info("removing %s: the process that was writing it is gone", shown)
            directory.store.delete(keys)


def _is_in_use(path: StorePath, folder: str) -> bool:
    try:
        return read_manifest(path).folder == folder
    except NotFoundError:
        return False
    except (DataLossError, ValueError):
        return True  # as far as one can tell


def _files_of(path: StorePath) -> list[str]:
    """The keys of the files of the checkpoint that is at ``path``; none if it is damaged."""
    try:
        return [(path / name).key for name in read_manifest(path).files]
    except (NotFoundError, DataLossError, ValueError):
        return []


def new_draft(path: AnyPath) -> Draft:
    """Begin to write the checkpoint ``path``.

    Raises:
        FileExistsError: On a disk, something else is there.
    """
    return StoreDraft.begin(path) if isinstance(path, StorePath) else DiskDraft.begin(path)


def joined_draft(path: AnyPath, name: str) -> Draft:
    """Return the draft of the checkpoint ``path`` that another rank has begun under ``name``."""
    if isinstance(path, StorePath):
        return StoreDraft(path, name)
    return DiskDraft(path, path.with_name(name))


def discard(path: AnyPath) -> None:
    """Remove the checkpoint ``path``: half of one is never seen under its name.

    Raises:
        OSError: It cannot be removed.
    """
    if isinstance(path, StorePath):
        discard_stored(path)
    else:
        staging.discard(path)


def sweep(directory: AnyPath) -> None:
    """Remove what processes that were killed have left in ``directory``."""
    if isinstance(directory, StorePath):
        sweep_store(directory)
    else:
        staging.sweep(directory)
