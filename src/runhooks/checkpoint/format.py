"""A checkpoint on the disk: a folder of three files, the manifest written last.

    model.ckpt-1200/
      variables.safetensors   the arrays
      states.json             what hooks keep
      manifest.json           the step, and the size and CRC-32C of the other two

The folder is made under a temporary name, brought to the disk and then renamed: a checkpoint is
there whole, or not at all. Nothing in it is ever executed, as a pickle would be.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

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


class Checkpoint(NamedTuple):
    """What is known of a checkpoint without reading its values.

    ``step``: -1 if its graph had none. ``wall_time`` and ``series_start``: as in its manifest.
    ``complete``: whether its manifest is sound and its files have the sizes that it says; if not,
    the times are that of the folder.
    """

    path: Path
    step: int
    wall_time: float
    series_start: float
    complete: bool = True


def write_checkpoint(
    path: Path,
    snapshot: Snapshot,
    *,
    global_step: int | None,
    previous: Checkpoint | None = None,
) -> Checkpoint:
    """Save ``snapshot`` as the checkpoint ``path``, in the place of one that is there.

    ``previous``: the one of the same series that was saved before it; None if it is the first.

    Raises TypeError or ValueError for an array or a state that cannot be saved, FileExistsError
    if ``path`` is something else than a checkpoint, OSError if it cannot be written; nothing is
    left of it then.
    """
    arrays.check(snapshot.arrays)
    states_json = states.encode(snapshot.states)
    if _is_something_else(path):
        raise FileExistsError(f"{path} is there already and is not a checkpoint: save elsewhere")
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ from host to host
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    with staging.publish(path) as folder:
        files = {
            VARIABLES: staging.write_file(folder / VARIABLES, arrays.encode(snapshot.arrays)),
            STATES: staging.write_file(folder / STATES, [states_json]),
        }
        specs = {
            name: ArraySpec(array.dtype.name, array.shape)
            for name, array in snapshot.arrays.items()
        }
        start = now if previous is None else previous.series_start
        manifest = Manifest(global_step, now, start, files, specs)
        staging.write_file(folder / MANIFEST, [manifest.to_bytes()])
    return described(path, manifest)


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
    """The manifest of the checkpoint ``path``, every file being there and as long as it says.

    Raises as ``read_checkpoint`` does.
    """
    try:
        manifest = Manifest.from_bytes((path / MANIFEST).read_bytes())
        for name, expected in manifest.files.items():
            size = (path / name).stat().st_size
            if size != expected.size:
                raise _damaged(path, f"{name} has {size} bytes and should have {expected.size}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(path, error) from None
    except NewerFormatError as error:
        raise ValueError(f"checkpoint {path} cannot be read: {error}") from error
    except ValueError as error:
        raise _damaged(path, f"{MANIFEST}: {error}") from error
    return manifest


def looks_like_checkpoint(path: Path) -> bool:
    """Whether ``path`` is a folder that is, or was meant to be, a checkpoint; damaged or not."""
    return (path / VARIABLES).exists() or (path / STATES).exists()


def described(path: Path, manifest: Manifest) -> Checkpoint:
    """What ``manifest`` says of the checkpoint ``path``."""
    step = -1 if manifest.global_step is None else manifest.global_step
    return Checkpoint(path, step, manifest.wall_time, manifest.series_start)


def _is_something_else(path: Path) -> bool:
    try:
        return not FILES.issuperset(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _read(path: Path, name: str, expected: FileDigest) -> bytes:
    try:
        data = (path / name).read_bytes()
    except FileNotFoundError as error:
        raise _missing(path, error) from None
    if google_crc32c.value(data) != expected.crc32c:
        raise _damaged(path, f"the checksum of {name} does not fit its content")
    return data


def _missing(path: Path, error: OSError) -> NotFoundError | DataLossError:
    if path.is_dir():
        return _damaged(path, f"{Path(error.filename).name} is missing")
    return NotFoundError(f"there is no checkpoint {path}", path=str(path))


def _damaged(path: Path, what: str) -> DataLossError:
    return DataLossError(f"checkpoint {path} is damaged: {what}", path=str(path))
