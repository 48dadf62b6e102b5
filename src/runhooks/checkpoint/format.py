"""A checkpoint: a folder with a safetensors file, which is written last.

The latest was saved last: a run may have gone back to an earlier step.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.arrays.shards import key_of
from runhooks.checkpoint import states, tensors
from runhooks.checkpoint.files import Shared, modified, place_of, printable, sizes_below
from runhooks.checkpoint.lock import CLAIMS
from runhooks.checkpoint.manifest import ArraySpec, Manifest, NewerFormatError
from runhooks.checkpoint.shards import (
    OWN,
    BlockTable,
    Overlap,
    Start,
    StoredArray,
    blocks_in,
    covering,
    read_several,
)
from runhooks.checkpoint.states import EncodedStates
from runhooks.checkpoint.tensors import COMMIT, STATES, CheckpointFile, Encoding, naming
from runhooks.contract import Snapshot
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.interruption import reading_threads
from runhooks.stores.path import AnyPath, StorePath


class Checkpoint(NamedTuple):
    """A checkpoint, as its manifest describes it.

    ``step``: -1 if its graph had none. ``complete``: whether that is sound and files have the
    stated sizes; if not, both times are the folder's.
    """

    path: AnyPath
    step: int
    wall_time: float
    series_start: float
    complete: bool = True
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})


class Content(NamedTuple):
    """What can be written; ``arrays``: of NumPy, or shards."""

    arrays: Mapping[str, Any]
    states: EncodedStates


def content_of(snapshot: Snapshot) -> Content:
    """Return what is written, which later changes of states do not reach. Raises as ``encode``."""
    tensors.check(snapshot.arrays)
    return Content(snapshot.arrays, states.encode(snapshot.states))


def encoded(
    arrays: Mapping[str, Any], about: Mapping[str, Any], kept: EncodedStates | None = None
) -> Encoding:
    if kept is None:
        return Encoding(arrays, about)
    of_states = {STATES + entry: it for entry, it in kept.arrays.items()}
    return Encoding({**arrays, **of_states}, about, kept.text.decode())


def begun_manifest(
    global_step: int | None,
    previous: Checkpoint | None = None,
    metrics: Mapping[str, float] = MappingProxyType({}),
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    start = now if previous is None else previous.series_start
    return Manifest(global_step, now, start, metrics, modes)


class StoredCheckpoint:
    """A checkpoint of which no more is read than is asked for. Raises as ``read_checkpoint``.

    ``in_parts``: several ranks read it, each looking only at the files that it reads.
    """

    def __init__(self, path: AnyPath, in_parts: bool = False) -> None:
        self._path = path
        self._head = CheckpointFile(path / COMMIT)
        try:
            with self._head.naming():
                self.manifest = Manifest.from_json(self._head.about)
        except NewerFormatError as error:
            raise ValueError(f"checkpoint {printable(path)} cannot be read: {error}") from error
        self._files = Shared(self._opened)
        self._listed = Shared(self._blocks_of)
        self._names = list(self.manifest.files)
        if not in_parts and self._names:
            size_of = sizes_below(path)
            for name, digest in self.manifest.files.items():
                with naming(path, name):
                    if (size := size_of(name)) != digest.size:
                        raise ValueError(f"it has {size} bytes and should have {digest.size}")

    @property
    def specs(self) -> dict[str, ArraySpec]:
        if self._names:
            return {name: spec for name, (spec, _) in self.manifest.arrays.items()}
        entries = self._head.entries.items()
        return {n: ArraySpec(*it[:2]) for n, it in entries if not n.startswith(STATES)}

    def arrays(self, rank: int | None = None, near: Sequence[int] = ()) -> dict[str, StoredArray]:
        """Return the arrays of ``rank``; None: as the chief had those that differed.

        Blocks are looked for in the files of the ranks ``near`` before the table.
        """
        if not self._names:
            return {n: StoredArray.at(self._head, n, it) for n, it in self.specs.items()}
        with self._head.naming():
            table = BlockTable(self._head, self.manifest.arrays, self.manifest.ranks)
        near = near if self.manifest.ranks > 1 else [0]
        is_far = isinstance(self._path, StorePath)
        found = {
            name: StoredArray(
                spec,
                partial(self._blocks, table, near, name),
                self._files.__getitem__,
                partial(key_of, name),
                is_far=is_far,
            )
            for name, spec in self.specs.items()
        }
        return found if rank is None else found | self.own_arrays(rank)

    def own_arrays(self, rank: int) -> dict[str, StoredArray]:
        file = self._files[rank]
        return {
            key.removesuffix(OWN): StoredArray.at(file, key, ArraySpec(*entry[:2]))
            for key, entry in file.entries.items()
            if key.endswith(OWN)
        }

    def states(self, rank: int | None = None) -> dict[str, Any]:
        file = self._of(rank)
        entries = (name for name in file.entries if name.startswith(STATES))
        kept = {name.removeprefix(STATES): it for name, it in file.stream(entries)}
        with file.naming():
            return states.decode(EncodedStates(file.text_of_states(), kept))

    def states_without_arrays(self, rank: int | None = None) -> dict[str, Any]:
        file = self._of(rank)
        with file.naming():
            return states.without_arrays(file.text_of_states())

    def check(self) -> list[str]:
        """Check every file; return the names of the states."""
        self._head.check()
        found: set[str] = set()
        for rank in range(self.manifest.ranks):
            self._files[rank].check()
            found.update(self.states_without_arrays(rank))
        for array in self.arrays().values():
            array.check()
        return sorted(found)

    def _of(self, rank: int | None) -> CheckpointFile:
        return self._files[self.manifest.chief if rank is None else rank]

    def _blocks(
        self, table: BlockTable, near: Sequence[int], name: str, *part: Start
    ) -> list[Overlap]:
        known = [(rank, *it) for rank in near for it in self._listed[rank].get(name, ())]
        found = covering(known, *part) if all(len(it[1]) == len(part[0]) for it in known) else None
        if found is None:
            with self._head.naming():
                return table.overlaps(name, *part)
        return found

    def _blocks_of(self, rank: int) -> dict[str, list[tuple[Start, Start]]]:
        file = self._files[rank]
        with file.naming():
            return blocks_in(file)

    def _opened(self, rank: int) -> CheckpointFile:
        if not self._names:
            return self._head
        name = self._names[rank]
        file = CheckpointFile(self._path / name)
        with file.naming():
            if file.digest != self.manifest.files[name]:
                raise ValueError("it is not the file that the checkpoint was completed with")
        _ = file.entries
        return file


def read_checkpoint(path: AnyPath) -> Snapshot:
    """Return whole arrays, and the states of the chief.

    Raises NotFoundError, DataLossError, or ValueError if its format is newer than this runhooks.
    """
    stored = StoredCheckpoint(path)
    return Snapshot(dict(read_several(stored.arrays())), stored.states())


def read_manifest(path: AnyPath) -> Manifest:
    """Return the manifest, if files have the stated sizes. Raises as ``read_checkpoint``."""
    return StoredCheckpoint(path).manifest


def looks_like_checkpoint(path: AnyPath) -> bool:
    """Return whether ``path`` is a checkpoint, or cannot be looked into."""
    if isinstance(path, StorePath):
        return (path / COMMIT).is_file()
    try:
        os.lstat(path / COMMIT)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def checkpoint_of(path: AnyPath, manifest: Manifest) -> Checkpoint:
    step = -1 if manifest.global_step is None else manifest.global_step
    times = manifest.wall_time, manifest.series_start
    return Checkpoint(path, step, *times, metrics=manifest.metrics, modes=manifest.modes)


#: Ends the names of folders with the states of hooks alone: the rest is TensorFlow's.
HOOK_STATES = ".hooks"

_INDEX = ".index"
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
NAME = re.compile(r".+-(\d+)")


def holds_hook_states(path: AnyPath) -> bool:
    return path.name.endswith(HOOK_STATES)


def tensorflow_checkpoint_near(path: AnyPath) -> str | None:
    """Return an error message if TensorFlow has to do with ``path``."""
    where = printable(path)
    if holds_hook_states(path) and looks_like_checkpoint(path):
        it = where.removesuffix(HOOK_STATES)
        return f"{where} has the states of hooks alone: {_read(it)} the checkpoint itself"
    if path.name and path.with_name(path.name + _INDEX).is_file():
        return f"{where} is a checkpoint of TensorFlow: {_read(where)} it"
    if latest := _latest_of_tensorflow(path):
        return f"the checkpoints in {where} are TensorFlow's: {_read(printable(latest))} one"
    return None


def check_no_tensorflow_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> None:
    found = _latest_of_tensorflow(place_of(checkpoint_dir))
    if found:
        latest = printable(found)
        raise ValueError(
            f"checkpoint_dir {os.fspath(checkpoint_dir)!r} has checkpoints of TensorFlow, which "
            "only sessions of a tf.Graph can restore: give another checkpoint_dir to start over. "
            f"To begin with weights, write those that {_read(latest)} to a .npz file, and give "
            "Scaffold(init_from=rh.InitFrom('weights.npz'))"
        )


def _read(path: str) -> str:
    return f"tf.train.load_checkpoint({path!r}) reads"


def _latest_of_tensorflow(directory: AnyPath) -> AnyPath | None:
    files: dict[str, float] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        below = directory.files() if isinstance(directory, StorePath) else directory.iterdir()
        for path in below:
            with suppress(FileNotFoundError):  # just removed
                if path.parent == directory and path.is_file():
                    files[path.name] = path.stat().st_mtime
    names = {match[1] for file in files if (match := _DATA.fullmatch(file))}
    saved = {name: files[name + _INDEX] for name in names if name + _INDEX in files}
    return directory / max(saved, key=lambda it: (saved[it], it)) if saved else None


def find_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return all checkpoints, damaged ones too, in the order of saving.

    Raises ValueError if one has a newer format.
    """
    directory = place_of(checkpoint_dir)
    paths = _paths(directory)
    while True:
        if isinstance(directory, StorePath):
            with reading_threads() as threads:
                found = list(threads.map(_look_at, paths))
        else:
            found = list(map(_look_at, paths))
        listed, paths = paths, _paths(directory)
        # If one was removed meanwhile, a newer one may not be listed.
        if paths >= listed:
            return sorted(filter(None, found), key=lambda it: (it.wall_time, it.step, it.path))


def checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the complete checkpoints, in the order of saving."""
    return [str(it.path) for it in find_checkpoints(checkpoint_dir) if it.complete]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """Return the path of the newest complete checkpoint, or None if there is none.

    Raises:
        FileNotFoundError: The bucket of a URL does not exist.
        OSError: The store cannot be reached.
    """
    return next(reversed(checkpoints(checkpoint_dir)), None)


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """Return the global step; None if its graph had none. Raises as ``read_checkpoint``."""
    return read_manifest(place_of(path)).global_step


def _paths(directory: AnyPath) -> set[AnyPath]:
    names: list[str] = []
    if isinstance(directory, StorePath):  # whose bucket must be there
        names = directory.store.folders(directory.key)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [it.name for it in directory.iterdir()]
    ours = (name for name in names if name != CLAIMS and not name.endswith(HOOK_STATES))
    return {directory / name for name in ours}


def _look_at(path: AnyPath) -> Checkpoint | None:
    try:
        if not looks_like_checkpoint(path):
            return None
        try:
            return checkpoint_of(path, read_manifest(path))
        except DataLossError:
            name = NAME.fullmatch(path.name)
            time = min(max(modified(path), 0), clock.wall())
            return Checkpoint(path, int(name[1]), time, time, complete=False) if name else None
    except (NotFoundError, FileNotFoundError):  # just removed
        return None
