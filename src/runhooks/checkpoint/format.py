"""A checkpoint on the disk: a folder of three or four files, the manifest written last.

    model.ckpt-1200/
      variables.safetensors   the arrays
      states.json             what hooks and inputs keep
      states.safetensors      the bytes of the arrays among that, if there are any
      manifest.json           the step, metrics, and the size and CRC-32C of the others

The folder is made under a temporary name, brought to the disk and then renamed: a checkpoint is
there whole, or not at all. Nothing in it is ever executed, as a pickle would be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
from numpy.typing import NDArray

from runhooks import clock
from runhooks.checkpoint import arrays, staging, states
from runhooks.checkpoint.manifest import ArraySpec, FileDigest, Manifest, NewerFormatError
from runhooks.checkpoint.snapshot import Snapshot
from runhooks.checkpoint.states import EncodedStates
from runhooks.errors import DataLossError, NotFoundError

VARIABLES = "variables.safetensors"
STATES = "states.json"
STATE_ARRAYS = "states.safetensors"
MANIFEST = "manifest.json"
FILES = frozenset({VARIABLES, STATES, STATE_ARRAYS, MANIFEST})


class Checkpoint(NamedTuple):
    """What is known of a checkpoint without reading its values.

    ``step``: -1 if its graph had none. ``wall_time``, ``series_start`` and ``metrics``: as in its
    manifest. ``complete``: whether its manifest is sound and its files have the sizes that it
    says; if not, the times are that of the folder.
    """

    path: Path
    step: int
    wall_time: float
    series_start: float
    complete: bool = True
    metrics: Mapping[str, float] = MappingProxyType({})


class Content(NamedTuple):
    """What is written of a snapshot: its states are bytes already, and found to be savable."""

    arrays: Mapping[str, NDArray[Any]]
    states: EncodedStates


def content_of(snapshot: Snapshot) -> Content:
    """What is to be written of ``snapshot``; objects in its states may change after this.

    Raises TypeError or ValueError for an array or a state that cannot be saved.
    """
    arrays.check(snapshot.arrays)
    return Content(snapshot.arrays, states.encode(snapshot.states))


def write_checkpoint(path: Path, snapshot: Snapshot, *, global_step: int | None) -> Checkpoint:
    """Save ``snapshot`` as the checkpoint ``path``, the first of a series.

    Raises as ``content_of`` and ``write_content``.
    """
    return write_content(path, content_of(snapshot), global_step=global_step)


def write_content(
    path: Path,
    content: Content,
    *,
    global_step: int | None,
    previous: Checkpoint | None = None,
    metrics: Mapping[str, float] = MappingProxyType({}),
) -> Checkpoint:
    """Save ``content`` as the checkpoint ``path``, in the place of one that is there.

    ``previous``: the one of the same series that was saved before it; None if it is the first.

    Raises FileExistsError if ``path`` is something else than a checkpoint, OSError if it cannot be
    written; nothing is left of it then.
    """
    if _is_something_else(path):
        raise FileExistsError(f"{path} is there already and is not a checkpoint: save elsewhere")
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ from host to host
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    pieces = {VARIABLES: arrays.encode(content.arrays), STATES: [content.states.text]}
    if content.states.arrays:
        pieces[STATE_ARRAYS] = arrays.encode(content.states.arrays)
    with staging.publish(path) as folder:
        files = {name: staging.write_file(folder / name, part) for name, part in pieces.items()}
        specs = {
            name: ArraySpec(array.dtype.name, array.shape) for name, array in content.arrays.items()
        }
        start = now if previous is None else previous.series_start
        manifest = Manifest(global_step, now, start, files, specs, metrics)
        staging.write_file(folder / MANIFEST, [manifest.to_bytes()])
    return described(path, manifest)


def read_checkpoint(path: Path) -> Snapshot:
    """What the checkpoint ``path`` holds, every file checked against the manifest.

    Raises NotFoundError if it is not there, DataLossError if it is damaged, ValueError if its
    format is newer than this version of runhooks.
    """
    files = read_manifest(path).files
    state_arrays = _read_arrays(path, STATE_ARRAYS, files) if STATE_ARRAYS in files else {}
    text = _read(path, STATES, files[STATES])
    kept = states.decode(EncodedStates(text, state_arrays))
    return Snapshot(_read_arrays(path, VARIABLES, files), kept)


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
    return Checkpoint(
        path, step, manifest.wall_time, manifest.series_start, metrics=manifest.metrics
    )


def _is_something_else(path: Path) -> bool:
    try:
        return not FILES.issuperset(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _read_arrays(path: Path, name: str, files: Mapping[str, FileDigest]) -> dict[str, NDArray[Any]]:
    data = _read(path, name, files[name])
    try:
        return arrays.decode(data)
    except ValueError as error:
        raise _damaged(path, f"{name}: {error}") from error


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
