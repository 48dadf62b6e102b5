"""A checkpoint: a folder with one safetensors file of its arrays, states and manifest.

If several ranks have written it, or it is in a store, that file, the last, lists those of the ranks
and has a table of the blocks of the arrays.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.arrays.shards import key_of
from runhooks.checkpoint import states, tensors
from runhooks.checkpoint.files import Shared, printable, sizes_below
from runhooks.checkpoint.manifest import ArraySpec, Manifest, NewerFormatError
from runhooks.checkpoint.shards import (
    OWN,
    BlockTable,
    Start,
    StoredArray,
    StoredBlock,
    blocks_in,
    covering,
    read_several,
)
from runhooks.checkpoint.states import EncodedStates
from runhooks.checkpoint.tensors import COMMIT, STATES, CheckpointFile, Encoding, naming
from runhooks.contract import Snapshot
from runhooks.stores.path import AnyPath, StorePath


class Checkpoint(NamedTuple):
    """A checkpoint, as its manifest describes it.

    ``step``: -1 if its graph had none. ``complete``: whether its manifest is sound and its files
    have the sizes that it states; if not, both times are that of the folder.
    """

    path: AnyPath
    step: int
    wall_time: float
    series_start: float
    complete: bool = True
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})


class Content(NamedTuple):
    """A snapshot that can be written: arrays of NumPy, or shards that ranks write together."""

    arrays: Mapping[str, Any]
    states: EncodedStates


def content_of(snapshot: Snapshot) -> Content:
    """Return ``snapshot`` as it is to be written; objects in its states may change after this.

    Raises TypeError or ValueError for what cannot be saved.
    """
    tensors.check(snapshot.arrays)
    return Content(snapshot.arrays, states.encode(snapshot.states))


def encoded(
    arrays: Mapping[str, Any], about: Mapping[str, Any], kept: EncodedStates | None = None
) -> Encoding:
    """Return a file with ``arrays`` and the states ``kept``."""
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
    """Return the manifest of a checkpoint saved now, after ``previous`` of its series."""
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ from host to host
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    start = now if previous is None else previous.series_start
    return Manifest(global_step, now, start, metrics, modes)


class StoredCheckpoint:
    """The checkpoint ``path``, of which no more is read than is asked for.

    Only its files are opened, and only regular ones of the stated size: anybody may have made the
    folder. ``in_parts``: several ranks read it, each looking only at the files that it reads.

    Raises as ``read_checkpoint``.
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
            return {n: StoredArray.at(lambda: self._head, n, it) for n, it in self.specs.items()}
        with self._head.naming():
            table = BlockTable(self._head, self.manifest.arrays, self.manifest.ranks)
        near = near if self.manifest.ranks > 1 else [0]
        is_far = isinstance(self._path, StorePath)
        found = {
            name: StoredArray(spec, partial(self._blocks, table, near, name), is_far=is_far)
            for name, spec in self.specs.items()
        }
        return found if rank is None else found | self.own_arrays(rank)

    def own_arrays(self, rank: int) -> dict[str, StoredArray]:
        """Return those that differ from the chief's."""
        file = self._files[rank]
        return {
            key.removesuffix(OWN): StoredArray.at(lambda: file, key, ArraySpec(*entry[:2]))
            for key, entry in file.entries.items()
            if key.endswith(OWN)
        }

    def states(self, rank: int | None = None) -> dict[str, Any]:
        """Return the states of ``rank``; None: of the chief."""
        file = self._files[self.manifest.chief if rank is None else rank]
        entries = (name for name in file.entries if name.startswith(STATES))
        kept = {name.removeprefix(STATES): it for name, it in file.stream(entries)}
        with file.naming():
            return states.decode(EncodedStates(file.text_of_states(), kept))

    def states_without_arrays(self, rank: int | None = None) -> dict[str, Any]:
        """Return the same with None for each array."""
        file = self._files[self.manifest.chief if rank is None else rank]
        with file.naming():
            return states.without_arrays(file.text_of_states())

    def check(self) -> list[str]:
        """Check every file, a piece at a time; return the names of the states."""
        self._head.check()
        found: set[str] = set()
        for rank in range(self.manifest.ranks):
            self._files[rank].check()
            found.update(self.states_without_arrays(rank))
        for array in self.arrays().values():
            array.check()
        return sorted(found)

    def _blocks(
        self, table: BlockTable, near: Sequence[int], name: str, *part: Start
    ) -> list[StoredBlock]:
        known = [(rank, *it) for rank in near for it in self._listed[rank].get(name, ())]
        found = covering(known, *part) if all(len(it[1]) == len(part[0]) for it in known) else None
        if found is None:
            with self._head.naming():
                found = table.overlaps(name, *part)
        files = self._files
        return [
            StoredBlock(partial(files.__getitem__, it.rank), key_of(name, it.start), *it[1:])
            for it in found
        ]

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
    """Return what the checkpoint ``path`` holds: whole arrays, and the states of the chief.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is damaged, or cannot be read.
        ValueError: Its format is newer than this version of runhooks.
    """
    stored = StoredCheckpoint(path)
    return Snapshot(dict(read_several(stored.arrays())), stored.states())


def read_manifest(path: AnyPath) -> Manifest:
    """Return the manifest of a checkpoint, whose files have the stated sizes.

    Raises as ``read_checkpoint``.
    """
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
    """Return the checkpoint ``path`` with ``manifest``."""
    step = -1 if manifest.global_step is None else manifest.global_step
    times = manifest.wall_time, manifest.series_start
    return Checkpoint(path, step, *times, metrics=manifest.metrics, modes=manifest.modes)
