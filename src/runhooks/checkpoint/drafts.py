"""How checkpoints are written and removed, on a disk or in a store, by where they are."""

from __future__ import annotations

from runhooks.checkpoint import staging
from runhooks.checkpoint.disk_draft import DiskDraft
from runhooks.checkpoint.draft import Draft
from runhooks.checkpoint.store_draft import StoreDraft, discard_stored, sweep_store
from runhooks.stores.path import AnyPath, StorePath


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
