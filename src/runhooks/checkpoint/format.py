"""A checkpoint: a folder with one safetensors file, which holds its arrays, states and manifest.

Of one that several ranks have written, or that is in a store, the file lists others, one of each
rank, and has a table of the blocks that the arrays are made of. It is written last: a checkpoint is
complete, or absent. Nothing in it is ever executed, as a pickle would be.
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
from runhooks.checkpoint.shards import OWN, StoredArray, StoredBlock, blocks_in, read_several
from runhooks.checkpoint.states import EncodedStates
from runhooks.checkpoint.table import BlockTable, Start, covering
from runhooks.checkpoint.tensors import COMMIT, STATES, CheckpointFile, Encoding, naming
from runhooks.contract import Snapshot
from runhooks.stores.path import AnyPath, StorePath


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
    tensors.check(snapshot.arrays)
    return Content(snapshot.arrays, states.encode(snapshot.states))


def encoded(
    arrays: Mapping[str, Any], about: Mapping[str, Any], kept: EncodedStates | None = None
) -> Encoding:
    """Return a file with ``arrays`` and the states ``kept``; ``about`` is what it says of itself.

    Raises ValueError if it has too many arrays.
    """
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
    """Return the manifest of a checkpoint that is saved now.

    Args:
        global_step: The step to record; None if the graph has none.
        previous: The checkpoint saved before it in the same series; None if it is the first.
        metrics: The metrics to record.
        modes: Whether the ``"max"`` or the ``"min"`` of a metric is best, to record.
    """
    now = clock.wall()
    if previous is not None:  # clocks are set back, and differ from host to host
        now = max(now, math.nextafter(previous.wall_time, math.inf))
    start = now if previous is None else previous.series_start
    return Manifest(global_step, now, start, metrics, modes)


class StoredCheckpoint:
    """The checkpoint ``path``, of which no more is read than is asked for.

    Nothing but the files of a checkpoint is opened, and of these only regular ones of the stated
    size: anybody may have made the folder.

    Attributes:
        manifest: What it says of itself.

    Args:
        path: The folder.
        in_parts: Whether several ranks read it, a part each: no file is looked at that is not read.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is damaged, or cannot be read.
        ValueError: Its format is newer than this version of runhooks.
    """

    def __init__(self, path: AnyPath, in_parts: bool = False) -> None:
        self._path = path
        self._head = CheckpointFile(path / COMMIT)
        try:
            with naming(path, COMMIT):
                self.manifest = Manifest.from_json(self._head.about)
        except NewerFormatError as error:
            raise ValueError(f"checkpoint {printable(path)} cannot be read: {error}") from error
        self._files = Shared(self._opened)
        self._openers = [
            partial(self._files.__getitem__, rank) for rank in range(self.manifest.ranks)
        ]
        self._listed = Shared(self._blocks_of)
        self._names = list(self.manifest.files)
        if not in_parts and self._names:
            self._check_sizes()

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """The dtypes and shapes of the arrays, by name."""
        if self._names:
            return {name: spec for name, (spec, _) in self.manifest.arrays.items()}
        entries = self._head.entries.items()
        return {n: ArraySpec(*it[:2]) for n, it in entries if not n.startswith(STATES)}

    def arrays(self, rank: int | None = None, near: Sequence[int] = ()) -> dict[str, StoredArray]:
        """Return the arrays of ``rank``; None: as the chief had those that differed.

        Args:
            rank: The rank that had them.
            near: In the files of these ranks, blocks are looked for before they are in the table,
                of which nothing need be read then.
        """
        if not self._names:
            return {n: StoredArray.at(lambda: self._head, n, it) for n, it in self.specs.items()}
        with naming(self._path, COMMIT):
            table = BlockTable(self._head, self.manifest.arrays, self.manifest.ranks)
        near = near if self.manifest.ranks > 1 else [0]
        is_far = isinstance(self._path, StorePath)
        found = {
            name: StoredArray(spec, partial(self._blocks, table, near, name), is_far=is_far)
            for name, spec in self.specs.items()
        }
        return found if rank is None else found | self.own_arrays(rank)

    def own_arrays(self, rank: int) -> dict[str, StoredArray]:
        """Return those arrays of ``rank`` that differ from the chief's."""
        own = (it for it in self._files[rank].entries.items() if it[0].endswith(OWN))
        return {
            key.removesuffix(OWN): StoredArray.at(self._openers[rank], key, ArraySpec(dtype, shape))
            for key, (dtype, shape, *_) in own
        }

    def states(self, rank: int | None = None) -> dict[str, Any]:
        """Return the states of ``rank``; None: of the chief."""
        file = self._files[self.manifest.chief if rank is None else rank]
        entries = (name for name in file.entries if name.startswith(STATES))
        kept = {name.removeprefix(STATES): it for name, it in file.stream(entries)}
        with naming(self._path, file.path.name):
            return states.decode(EncodedStates(self._text(file), kept))

    def states_without_arrays(self) -> dict[str, Any]:
        """Return the states of the chief with None in the place of each array in them."""
        file = self._files[self.manifest.chief]
        with naming(self._path, file.path.name):
            return states.without_arrays(self._text(file))

    def check(self) -> list[str]:
        """Check every file without keeping arrays in memory; return the names of the states."""
        self._head.check()
        found: set[str] = set()
        for rank in range(self.manifest.ranks):
            file = self._files[rank]
            file.check()
            with naming(self._path, file.path.name):
                found.update(states.without_arrays(self._text(file)))
        for array in self.arrays().values():
            array.check()
        return sorted(found)

    def _blocks(
        self, table: BlockTable, near: Sequence[int], name: str, *part: Start
    ) -> list[StoredBlock]:
        """The blocks of an array that make up a part, given by its start and shape."""
        known = [(rank, *it) for rank in near for it in self._listed[rank].get(name, ())]
        found = covering(known, *part) if all(len(it[1]) == len(part[0]) for it in known) else None
        if found is None:
            with naming(self._path, COMMIT):
                found = table.overlaps(name, *part)
        return [
            StoredBlock(self._openers[it.rank], key_of(name, it.start), *it[1:]) for it in found
        ]

    def _blocks_of(self, rank: int) -> dict[str, list[tuple[Start, Start]]]:
        file = self._files[rank]
        with naming(self._path, file.path.name):
            return blocks_in(file)

    def _opened(self, rank: int) -> CheckpointFile:
        if not self._names:
            return self._head
        name = self._names[rank]
        file = CheckpointFile(self._path / name)
        with naming(self._path, name):
            if file.digest != self.manifest.files[name]:
                raise ValueError("it is not the file that the checkpoint was completed with")
        _ = file.entries
        return file

    def _check_sizes(self) -> None:
        size_of = sizes_below(self._path)
        for name, digest in self.manifest.files.items():
            with naming(self._path, name):
                if (size := size_of(name)) != digest.size:
                    raise ValueError(f"it has {size} bytes and should have {digest.size}")

    @staticmethod
    def _text(file: CheckpointFile) -> bytes:
        if file.states is None:
            raise ValueError("its states are missing")
        return file.states.encode()


def read_checkpoint(path: AnyPath) -> Snapshot:
    """Return what the checkpoint ``path`` holds, all of it compared with its checksums.

    Of one that several ranks have written: all arrays in whole, and the states of the chief.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is damaged, or cannot be read.
        ValueError: Its format is newer than this version of runhooks.
    """
    stored = StoredCheckpoint(path)
    return Snapshot(dict(read_several(stored.arrays())), stored.states())


def read_manifest(path: AnyPath) -> Manifest:
    """Return the manifest of the checkpoint ``path``; check that its files have the stated sizes.

    Raises as ``read_checkpoint`` does.
    """
    return StoredCheckpoint(path).manifest


def looks_like_checkpoint(path: AnyPath) -> bool:
    """Return whether ``path`` is the folder of a checkpoint, damaged or not.

    True for a folder that cannot be looked into.
    """
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
    """Return the checkpoint ``path`` as ``manifest`` describes it."""
    step = -1 if manifest.global_step is None else manifest.global_step
    times = manifest.wall_time, manifest.series_start
    return Checkpoint(path, step, *times, metrics=manifest.metrics, modes=manifest.modes)
