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
from runhooks.checkpoint.arrays import check_arrays, check_size, check_sum, naming, read_file
from runhooks.checkpoint.manifest import (
    MANIFEST,
    STATE_ARRAYS,
    STATES,
    VARIABLES,
    Manifest,
    NewerFormatError,
    files_of,
    is_data_file,
)
from runhooks.checkpoint.reading import opened, printable, sizes_below
from runhooks.checkpoint.shards import ShardedCheckpoint, check_states, read_several, read_states
from runhooks.checkpoint.states import EncodedStates
from runhooks.contract.session import Snapshot
from runhooks.stores.path import AnyPath, StorePath

#: Half a million arrays.
MOST_MANIFEST_BYTES = 64 << 20


class Checkpoint(NamedTuple):
    """A checkpoint, as far as it is known without reading its values.

    ``step``: -1 if its graph had none. ``wall_time``, ``series_start`` and ``metrics``: as in its
    manifest. ``complete``: whether its manifest is sound and its files have the sizes that it
    states; if not, both times are that of the folder. ``modes``: as in its manifest.
    """

    path: AnyPath
    step: int
    wall_time: float
    series_start: float
    complete: bool = True
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})


class Content(NamedTuple):
    """A snapshot that can be written: its arrays are checked, its states are bytes already.

    ``arrays``: of NumPy; a ``ShardedArray`` is for ranks that write a checkpoint together.
    """

    arrays: Mapping[str, Any]
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
    check_free(path)
    pieces = {VARIABLES: arrays.encode(content.arrays), STATES: [content.states.text]}
    if content.states.arrays:
        pieces[STATE_ARRAYS] = arrays.encode(content.states.arrays)
    manifest = begun_manifest(global_step, previous, metrics, modes)
    with staging.publish(path) as folder:
        files = {name: staging.write_file(folder / name, part) for name, part in pieces.items()}
        specs = {name: arrays.spec_of(array) for name, array in content.arrays.items()}
        manifest = manifest._replace(files=files, arrays=specs)
        write_manifest(folder, manifest)
    return checkpoint_of(path, manifest)


def check_free(path: Path) -> None:
    """Raise FileExistsError if something that is not a checkpoint is at ``path``."""
    if _is_something_else(path):
        raise FileExistsError(f"{path} exists and is not a checkpoint: save elsewhere")


def begun_manifest(
    global_step: int | None,
    previous: Checkpoint | None,
    metrics: Mapping[str, float],
    modes: Mapping[str, str],
) -> Manifest:
    """Return the manifest of a checkpoint that is saved now, still without files and arrays.

    The arguments are as for ``write_content``.
    """
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ from host to host
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    start = now if previous is None else previous.series_start
    return Manifest(global_step, now, start, {}, {}, metrics, modes)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest`` into ``folder``. Raises ValueError if it has too many arrays."""
    staging.write_file(folder / MANIFEST, [manifest_bytes(manifest)])


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return ``manifest`` as it is written. Raises ValueError if it has too many arrays."""
    data = manifest.to_bytes()
    if len(data) > MOST_MANIFEST_BYTES:
        raise ValueError(f"{len(manifest.arrays)} arrays are too many for a checkpoint: stack some")
    return data


def read_checkpoint(path: AnyPath) -> Snapshot:
    """Return what the checkpoint ``path`` holds, every file checked against the manifest.

    Of one that several ranks have written: all arrays in whole, and the states of the chief.

    Nothing but the files of a checkpoint is opened, and of these only regular ones of the stated
    size: anybody may have made the folder.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is damaged, or cannot be read.
        ValueError: Its format is newer than this version of runhooks.
    """
    return read_contents(path, read_manifest(path))


def read_contents(path: AnyPath, manifest: Manifest) -> Snapshot:
    """Return what ``read_checkpoint`` returns, whose manifest is read already. Raises the same."""
    if manifest.ranks is not None:
        sharded = ShardedCheckpoint(path, manifest)
        kept = sharded.states(manifest.chief)
        return Snapshot(dict(read_several(sharded.arrays())), kept)
    kept = read_states(path, STATES, STATE_ARRAYS, manifest.files)
    return Snapshot(dict(_stream(path, manifest, manifest.arrays)), kept)


def check_checkpoint(path: AnyPath) -> list[str]:
    """Check every file of the checkpoint ``path`` without keeping its arrays in memory.

    Returns:
        The names of its states.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    manifest = read_manifest(path)
    if manifest.ranks is not None:
        return ShardedCheckpoint(path, manifest).check()
    check_arrays(path, VARIABLES, manifest.files[VARIABLES], manifest.arrays)
    return check_states(path, STATES, STATE_ARRAYS, manifest.files)


def stream_arrays(path: AnyPath, wanted: Collection[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays ``wanted`` of the checkpoint ``path`` by name, as they come in its file.

    The memory of one array is all that it takes. The file is read to its end and then compared with
    its checksum: rely on no array before the last.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    manifest = read_manifest(path)
    if manifest.ranks is not None:
        stored = ShardedCheckpoint(path, manifest).arrays()
        yield from read_several({name: it for name, it in stored.items() if name in wanted})
        return
    yield from _stream(path, manifest, wanted)


def _stream(
    path: AnyPath, manifest: Manifest, wanted: Collection[str]
) -> Iterator[tuple[str, NDArray[Any]]]:
    expected = manifest.files[VARIABLES]
    with naming(path, VARIABLES), opened(path / VARIABLES) as (file, size):
        check_size(size, expected)
        header = arrays.header_of(file, size)
        crc = google_crc32c.value(header)
        for name, entry in arrays.read_header(header, size, manifest.arrays).items():
            if name in wanted:
                array, crc = arrays.read_array(file, entry, crc)
                yield name, array
            else:
                crc = arrays.skip(file, entry.nbytes, crc)
        check_sum(crc, expected.crc32c)


def states_without_arrays(path: AnyPath) -> dict[str, Any]:
    """Return the states in the checkpoint ``path`` with None in the place of each array in them.

    Of one that several ranks have written: those of the chief.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """
    manifest = read_manifest(path)
    name = STATES if manifest.ranks is None else manifest.files_of(manifest.chief).states
    text = read_file(path, name, manifest.files[name])
    with naming(path, name):
        return states.without_arrays(text)


def read_manifest(path: AnyPath) -> Manifest:
    """Return the manifest of the checkpoint ``path``; check that its files have the stated sizes.

    Raises as ``read_checkpoint`` does.
    """
    with naming(path, MANIFEST), opened(path / MANIFEST) as (file, size):
        if size > MOST_MANIFEST_BYTES:
            raise ValueError(f"it has {size} bytes, the most is {MOST_MANIFEST_BYTES}")
        data = file.read(size)
    try:
        with naming(path, MANIFEST):
            manifest = Manifest.from_bytes(data)
    except NewerFormatError as error:
        raise ValueError(f"checkpoint {printable(path)} cannot be read: {error}") from error
    size_of = sizes_below(path)
    for name, expected in manifest.files.items():
        with naming(path, name):
            check_size(size_of(name), expected)
    return manifest


def looks_like_checkpoint(path: AnyPath) -> bool:
    """Return whether ``path`` is the folder of a checkpoint, damaged or not.

    True for a folder that cannot be looked into. In a store it is one that has a manifest.
    """
    if isinstance(path, StorePath):
        return (path / MANIFEST).is_file()
    for name in (VARIABLES, STATES, files_of(0).states):
        try:
            os.lstat(path / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass
        return True
    return any(is_data_file(it.name) for it in path.glob("attempt-*"))  # copied from a store


def _is_ours(name: str) -> bool:
    return name == MANIFEST or is_data_file(name)


def checkpoint_of(path: AnyPath, manifest: Manifest) -> Checkpoint:
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
        return not all(_is_ours(entry.name) for entry in path.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True
