"""A checkpoint on the disk: a folder of three or four files, of which the manifest comes last.

    model.ckpt-1200/
      variables.safetensors   the arrays
      states.json             the states of hooks and inputs
      states.safetensors      the bytes of the arrays in these states, if there are any
      manifest.json           the step, metrics, and the size and CRC-32C of the others

The folder is written under a temporary name, synced to the disk and then renamed: a checkpoint is
complete, or absent. Nothing in it is ever executed, as a pickle would be.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
from numpy.typing import NDArray

from runhooks import clock
from runhooks.checkpoint import arrays, staging, states
from runhooks.checkpoint.arrays import Entry
from runhooks.checkpoint.manifest import (
    MANIFEST,
    STATE_ARRAYS,
    STATES,
    VARIABLES,
    ArraySpec,
    FileDigest,
    Manifest,
    NewerFormatError,
)
from runhooks.checkpoint.reading import opened, printable, size_of
from runhooks.checkpoint.states import EncodedStates
from runhooks.contexts import contextmanager
from runhooks.contract.snapshot import Snapshot
from runhooks.errors import DataLossError, NotFoundError

FILES = frozenset({VARIABLES, STATES, STATE_ARRAYS, MANIFEST})
#: Half a million arrays.
MOST_MANIFEST_BYTES = 64 << 20

# Errors of this process. To go on from an older checkpoint because of them would lose steps.
_NOT_OF_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class Checkpoint(NamedTuple):
    """A checkpoint, as far as it is known without reading its values.

    ``step``: -1 if its graph had none. ``wall_time``, ``series_start`` and ``metrics``: as in its
    manifest. ``complete``: whether its manifest is sound and its files have the sizes that it
    states; if not, both times are that of the folder. ``modes``: as in its manifest.
    """

    path: Path
    step: int
    wall_time: float
    series_start: float
    complete: bool = True
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})


class Content(NamedTuple):
    """A snapshot that can be written: its arrays are checked, its states are bytes already."""

    arrays: Mapping[str, NDArray[Any]]
    states: EncodedStates


def content_of(snapshot: Snapshot) -> Content:
    """Return ``snapshot`` as it is to be written; objects in its states may change after this.

    Raises:
        TypeError: An array or a state is of a kind that cannot be saved.
        ValueError: An array has a name, or a state a depth, that cannot be saved.
    """
    arrays.check(snapshot.arrays)
    return Content(snapshot.arrays, states.encode(snapshot.states))


def write_checkpoint(path: Path, snapshot: Snapshot, *, global_step: int | None) -> Checkpoint:
    """Save ``snapshot`` as the checkpoint ``path``, the first of a series.

    Raises as ``content_of`` and ``write_content`` do.
    """
    return write_content(path, content_of(snapshot), global_step=global_step)


def write_content(
    path: Path,
    content: Content,
    *,
    global_step: int | None,
    previous: Checkpoint | None = None,
    metrics: Mapping[str, float] = MappingProxyType({}),
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Checkpoint:
    """Save ``content`` as the checkpoint ``path``, replacing one that is there.

    Args:
        path: The folder to make.
        content: What to write.
        global_step: The step to record; None if the graph has none.
        previous: The checkpoint saved before it in the same series; None if it is the first.
        metrics: The metrics to record.
        modes: Whether the ``"max"`` or the ``"min"`` of a metric is best, to record.

    Raises:
        FileExistsError: ``path`` is there and is not a checkpoint.
        OSError: It cannot be written. Nothing is left of it.
    """
    if _is_something_else(path):
        raise FileExistsError(f"{path} exists and is not a checkpoint: save elsewhere")
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
        manifest = Manifest(global_step, now, start, files, specs, metrics, modes)
        data = manifest.to_bytes()
        if len(data) > MOST_MANIFEST_BYTES:
            raise ValueError(f"{len(specs)} arrays are too many for a checkpoint: stack some")
        staging.write_file(folder / MANIFEST, [data])
    return described(path, manifest)


def read_checkpoint(path: Path) -> Snapshot:
    """Return what the checkpoint ``path`` holds, every file checked against the manifest.

    Nothing but the files of a checkpoint is opened, and of these only regular ones of the stated
    size: anybody may have made the folder.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is damaged, or cannot be read.
        ValueError: Its format is newer than this version of runhooks.
    """
    manifest = read_manifest(path)
    state_arrays = {}
    if STATE_ARRAYS in manifest.files:
        data = _read(path, STATE_ARRAYS, manifest)
        with _naming(path, STATE_ARRAYS):
            state_arrays = arrays.decode(data)
    text = _read(path, STATES, manifest)
    with _naming(path, STATES):
        kept = states.decode(EncodedStates(text, state_arrays))
    data = _read(path, VARIABLES, manifest)
    with _naming(path, VARIABLES):
        return Snapshot(arrays.decode(data, manifest.arrays), kept)


def check_checkpoint(path: Path) -> list[str]:
    """Check every file of the checkpoint ``path`` without keeping its arrays in memory.

    Returns:
        The names of its states.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    manifest = read_manifest(path)
    _check(path, VARIABLES, manifest, manifest.arrays)
    entries = _check(path, STATE_ARRAYS, manifest) if STATE_ARRAYS in manifest.files else {}
    text = _read(path, STATES, manifest)
    with _naming(path, STATES):
        return states.names(text, entries)


def stream_arrays(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays ``wanted`` of the checkpoint ``path`` by name, as they come in its file.

    The memory of one array is all that it takes. The file is read to its end and then compared with
    its checksum: rely on no array before the last.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    manifest = read_manifest(path)
    expected = manifest.files[VARIABLES]
    with _naming(path, VARIABLES), opened(path / VARIABLES) as (file, size):
        _check_size(size, expected)
        header = arrays.header_of(file, size)
        crc = google_crc32c.value(header)
        for name, entry in arrays.read_header(header, size, manifest.arrays).items():
            if name in wanted:
                array, crc = arrays.read_array(file, entry, crc)
                yield name, array
            else:
                crc = arrays.skip(file, entry.nbytes, crc)
        _check_sum(crc, expected)


def states_without_arrays(path: Path) -> dict[str, Any]:
    """Return the states in the checkpoint ``path`` with None in the place of each array in them.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    text = _read(path, STATES, read_manifest(path))
    with _naming(path, STATES):
        return states.without_arrays(text)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of the checkpoint ``path``; check that its files have the stated sizes.

    Raises as ``read_checkpoint`` does.
    """
    with _naming(path, MANIFEST), opened(path / MANIFEST) as (file, size):
        if size > MOST_MANIFEST_BYTES:
            raise ValueError(f"it has {size} bytes, the most is {MOST_MANIFEST_BYTES}")
        data = file.read(size)
    try:
        with _naming(path, MANIFEST):
            manifest = Manifest.from_bytes(data)
    except NewerFormatError as error:
        raise ValueError(f"checkpoint {printable(path)} cannot be read: {error}") from error
    for name, expected in manifest.files.items():
        with _naming(path, name):
            _check_size(size_of(path / name), expected)
    return manifest


def looks_like_checkpoint(path: Path) -> bool:
    """Return whether ``path`` is the folder of a checkpoint, damaged or not.

    True for a folder that cannot be looked into.
    """
    for name in (VARIABLES, STATES):
        try:
            os.lstat(path / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass
        return True
    return False


def described(path: Path, manifest: Manifest) -> Checkpoint:
    """Return the checkpoint ``path`` as ``manifest`` describes it."""
    step = -1 if manifest.global_step is None else manifest.global_step
    return Checkpoint(
        path,
        step,
        manifest.wall_time,
        manifest.series_start,
        metrics=manifest.metrics,
        modes=manifest.modes,
    )


def _is_something_else(path: Path) -> bool:
    try:
        return not FILES.issuperset(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _read(path: Path, name: str, manifest: Manifest) -> bytes:
    expected = manifest.files[name]
    with _naming(path, name), opened(path / name) as (file, size):
        _check_size(size, expected)
        data = file.read(size)
        _check_sum(google_crc32c.value(data), expected)
        return data


def _check(
    path: Path, name: str, manifest: Manifest, specs: Mapping[str, ArraySpec] | None = None
) -> Mapping[str, Entry]:
    """Check a file of arrays piece by piece; return what it holds."""
    expected = manifest.files[name]
    with _naming(path, name), opened(path / name) as (file, size):
        _check_size(size, expected)
        header = arrays.header_of(file, size)
        crc = arrays.skip(file, size - len(header), google_crc32c.value(header))
        _check_sum(crc, expected)
        return arrays.read_header(header, size, specs)


def _check_size(size: int, expected: FileDigest) -> None:
    if size != expected.size:
        raise ValueError(f"it has {size} bytes and should have {expected.size}")


def _check_sum(crc: int, expected: FileDigest) -> None:
    if crc != expected.crc32c:
        raise ValueError("its checksum does not match its content")


@contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    """Turn what is wrong with the file ``name`` of a checkpoint into an error that says so."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        if path.is_dir():
            raise _damaged(path, f"{name} is missing") from None
        raise NotFoundError(f"there is no checkpoint {printable(path)}", path=str(path)) from None
    except OSError as error:
        if error.errno in _NOT_OF_THE_FILE:
            raise
        raise _damaged(path, f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(path, f"{name}: {error}") from error


def _damaged(path: Path, what: str) -> DataLossError:
    return DataLossError(f"checkpoint {printable(path)} is damaged: {what}", path=str(path))
