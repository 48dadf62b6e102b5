"""A checkpoint on the disk: a folder of three files, the manifest written last.

    model.ckpt-1200/
      variables.safetensors   the arrays
      states.json             what hooks keep
      manifest.json           the step, and the size and CRC-32C of the other two

The folder is made under a temporary name, brought to the disk and then renamed: a checkpoint is
there whole, or not at all. Nothing in it is ever executed, as a pickle would be.
"""

from __future__ import annotations

from pathlib import Path

import google_crc32c

from runhooks import clock
from runhooks.checkpoint import arrays, staging, states
from runhooks.checkpoint.manifest import ArraySpec, FileDigest, Manifest, NewerFormatError
from runhooks.checkpoint.snapshot import Snapshot
from runhooks.errors import DataLossError, NotFoundError

VARIABLES = "variables.safetensors"
STATES = "states.json"
MANIFEST = "manifest.json"
FILES = frozenset({VARIABLES, STATES, MANIFEST})


def write_checkpoint(
    path: Path,
    snapshot: Snapshot,
    *,
    global_step: int | None,
    series_start: float | None = None,
) -> Manifest:
    """Save ``snapshot`` as the checkpoint ``path``, in the place of one that is there.

    ``series_start`` is that of the checkpoints before it, in seconds; None if it is the first.

    Raises TypeError for an array or a state that cannot be saved, FileExistsError if ``path`` is
    something else than a checkpoint, OSError if it cannot be written; nothing is left of it then.
    """
    arrays.check(snapshot.arrays)
    states_json = states.encode(snapshot.states)
    if path.exists() and not _may_be_replaced(path):
        raise FileExistsError(f"{path} is there already and is not a checkpoint: save elsewhere")
    now = clock.wall()
    with staging.publish(path) as folder:
        files = {
            VARIABLES: staging.write_file(folder / VARIABLES, arrays.encode(snapshot.arrays)),
            STATES: staging.write_file(folder / STATES, [states_json]),
        }
        specs = {
            name: ArraySpec(array.dtype.name, array.shape)
            for name, array in snapshot.arrays.items()
        }
        start = now if series_start is None else series_start
        manifest = Manifest(global_step, now, start, files, specs)
        staging.write_file(folder / MANIFEST, [manifest.to_bytes()])
    return manifest


def read_checkpoint(path: Path) -> Snapshot:
    """What the checkpoint ``path`` holds, every file checked against the manifest.

    Raises NotFoundError if it is not there, DataLossError if it is damaged, ValueError if its
    format is newer than this version of runhooks.
    """
    manifest = read_manifest(path)
    data = _read(path, VARIABLES, manifest.files[VARIABLES])
    try:
        found = arrays.decode(data)
    except ValueError as error:
        raise _damaged(path, f"{VARIABLES}: {error}") from error
    return Snapshot(found, states.decode(_read(path, STATES, manifest.files[STATES])))


def read_manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint ``path``; raises as ``read_checkpoint`` does."""
    if not path.is_dir():
        raise NotFoundError(f"there is no checkpoint {path}", path=str(path))
    try:
        return Manifest.from_bytes((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise _damaged(path, f"{MANIFEST} is missing") from None
    except NewerFormatError as error:
        raise ValueError(f"checkpoint {path} cannot be read: {error}") from error
    except ValueError as error:
        raise _damaged(path, f"{MANIFEST}: {error}") from error


def is_sound(path: Path) -> bool:
    """Whether the checkpoint ``path`` is there and every file is as the manifest says."""
    try:
        for name, digest in read_manifest(path).files.items():
            _read(path, name, digest)
    except (NotFoundError, DataLossError):
        return False
    return True


def looks_like_checkpoint(path: Path) -> bool:
    """Whether ``path`` is a folder that is, or was meant to be, a checkpoint; damaged or not."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or bool(names & FILES)


def _may_be_replaced(path: Path) -> bool:
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= FILES


def _read(path: Path, name: str, expected: FileDigest) -> bytes:
    try:
        data = (path / name).read_bytes()
    except FileNotFoundError:
        raise _damaged(path, f"{name} is missing") from None
    if len(data) != expected.size:
        raise _damaged(path, f"{name} has {len(data)} bytes and should have {expected.size}")
    if google_crc32c.value(data) != expected.crc32c:
        raise _damaged(path, f"the checksum of {name} does not fit its content")
    return data


def _damaged(path: Path, what: str) -> DataLossError:
    return DataLossError(f"checkpoint {path} is damaged: {what}", path=str(path))
