"""Blocks of arrays: what each rank writes of a checkpoint, and how any part of all is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.arrays.shards import ShardedArray, block, key_of, make_up, overlap, volume
from runhooks.checkpoint.files import reading_threads
from runhooks.checkpoint.manifest import ArraySpec, spec_from
from runhooks.checkpoint.tensors import STATES, CheckpointFile, Entry, damaged, item_bytes, spec_of

#: The end of the key of a whole array that a rank has written because it differs from the chief's.
OWN = "@rank"
#: The name of the table of blocks.
TABLE = "blocks"

#: What a rank saves by name: arrays of its own, which others may have too, and shards.
RankArrays = Mapping[str, NDArray[Any] | ShardedArray]
Start = tuple[int, ...]


def digests_of(content: RankArrays) -> dict[str, str]:
    """Return a digest of each array that is not sharded, by name."""
    whole = {name: it for name, it in content.items() if not isinstance(it, ShardedArray)}
    return {name: _digest(array) for name, array in whole.items()}


def blocks_to_write(
    content: RankArrays, held: Container[str] | None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the blocks that a rank writes, by their keys, and what its file says of them.

    Args:
        content: Its arrays and shards.
        held: The names of arrays that the chief has, too, and writes. None: this is the chief.
    """
    values: dict[str, NDArray[Any]] = {}
    samples: dict[str, int] = {}
    for name, array in content.items():
        for start, own in _blocks(name, array, held):
            values[name + OWN if start is None else key_of(name, start)] = own
        if isinstance(array, ShardedArray) and array.sample is not None and volume(array.shape):
            samples[name] = int(google_crc32c.value(np.ascontiguousarray(array.sample).tobytes()))
    return values, {
        "arrays": {name: spec_of(it) for name, it in content.items()},
        "samples": samples,
    }


class Written(NamedTuple):
    """What one rank has written.

    Attributes:
        blocks: The array, the start and the shape of each block.
        specs: The dtypes and shapes of the whole arrays.
        samples: Checksums of a few items of arrays that all ranks hold.
        own: The names of arrays of which it has other values than the chief.
    """

    blocks: list[tuple[str, Start, Start]]
    specs: Mapping[str, ArraySpec]
    samples: Mapping[str, int]
    own: list[str]

    @classmethod
    def of(cls, file: CheckpointFile) -> Written:
        """Return what is in the file of a rank."""
        keys = [key for key in file.entries if not key.startswith(STATES)]
        blocks = []
        for key in keys:
            name, _, start = key.rpartition("@")
            if not key.endswith(OWN):
                at = tuple(map(int, filter(None, start.split(","))))
                blocks.append((name, at, file.entries[key].shape))
        specs = {name: spec_from(*spec) for name, spec in file.about["arrays"].items()}
        own = [key.removesuffix(OWN) for key in keys if key.endswith(OWN)]
        return cls(blocks, specs, file.about["samples"], own)


def together(
    ranks: Sequence[Written],
) -> tuple[dict[str, tuple[ArraySpec, int]], NDArray[np.int64]]:
    """Return the arrays that the blocks of all ranks make up, and the table of these blocks.

    The table has a row for each block, sorted by array and start: the rank, the start and the shape
    of the block, with zeros in the place of dimensions that the array has not.

    Raises:
        ValueError: Blocks are missing or overlap, or ranks differ in what all should have.
    """
    specs: dict[str, ArraySpec] = {}
    blocks: dict[str, list[tuple[Start, Start, int]]] = {}
    seen: dict[str, int] = {}
    for rank, it in enumerate(ranks):
        for name, start, shape in it.blocks:
            spec = it.specs[name]
            if specs.setdefault(name, spec) != spec:
                raise ValueError(
                    f"{name!r} is {_shown(spec)} on rank {rank} and {_shown(specs[name])} on "
                    "another: one name must mean one array"
                )
            blocks.setdefault(name, []).append((start, shape, rank))
        for name, sample in it.samples.items():
            if seen.setdefault(name, sample) != sample:
                raise ValueError(
                    f"{name!r} has other values on rank {rank} than on another, but would be saved "
                    "once for all: make parts of a larger array DTensors, or bring the ranks "
                    "together before the checkpoint"
                )
    most = max((len(spec.shape) for spec in specs.values()), default=0)
    rows = []
    for name, spec in specs.items():
        check_whole(name, spec, [(start, shape) for start, shape, _ in blocks[name]])
        none = (0,) * (most - len(spec.shape))
        for start, shape, rank in sorted(blocks[name]):
            rows.append((rank, *start, *none, *shape, *none))
    table = np.array(rows, np.int64).reshape(len(rows), 1 + 2 * most)
    return {name: (spec, len(blocks[name])) for name, spec in specs.items()}, table


def check_whole(name: str, spec: ArraySpec, blocks: Sequence[tuple[Start, Start]]) -> None:
    """Raise ValueError unless ``blocks``, given by start and shape, make up the array ``name``."""
    if not make_up(spec.shape, blocks):
        items = sum(volume(shape) for _, shape in blocks)
        wrong = "overlap" if items >= volume(spec.shape) else f"have {items} items"
        raise ValueError(
            f"the shards of {name!r}, {_shown(spec)}, {wrong}: each item must be on one rank, "
            "or on all"
        )


class StoredBlock(NamedTuple):
    """A block of an array in a file.

    Attributes:
        file: Returns the file, opened.
        key: Its name there.
        start: The index of the first item of the block in the array.
        shape: The shape of the block.
    """

    file: Callable[[], CheckpointFile]
    key: str
    start: Start
    shape: Start


def blocks_in(
    table: NDArray[Any],
    arrays: Mapping[str, tuple[ArraySpec, int]],
    files: Sequence[Callable[[], CheckpointFile]],
) -> Iterator[tuple[str, ArraySpec, list[StoredBlock]]]:
    """Yield the name, the form and the blocks of each array.

    Args:
        table: As ``together`` has made it.
        arrays: As it has returned them.
        files: Open the file of each rank.

    Raises:
        ValueError: The blocks do not make up the arrays.
    """
    most = max((len(spec.shape) for spec, _ in arrays.values()), default=0)
    count = sum(count for _, count in arrays.values())
    if (
        table.dtype != np.int64
        or table.shape != (count, 1 + 2 * most)
        or (table < 0).any()
        or (table[:, 0] >= len(files)).any()
    ):
        raise ValueError("its table of blocks makes no sense")
    rows = iter(table.tolist())
    for name, (spec, count) in arrays.items():
        item_bytes(spec.dtype)
        ndim, blocks = len(spec.shape), []
        for rank, *place in islice(rows, count):
            start, shape = tuple(place[:ndim]), tuple(place[most : most + ndim])
            blocks.append(StoredBlock(files[rank], key_of(name, start), start, shape))
        check_whole(name, spec, [(it.start, it.shape) for it in blocks])
        yield name, spec, blocks


class StoredArray:
    """An array of a checkpoint, of which no more is read than is asked for.

    What is read is compared with its checksums. NumPy reads it whole.
    """

    def __init__(self, spec: ArraySpec, blocks: Sequence[StoredBlock]) -> None:
        self._spec = spec
        self._blocks = blocks
        self.shape = spec.shape
        self.dtype = dtype_named(spec.dtype)

    def read(self, start: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
        """Return the block of ``shape`` that begins at ``start``.

        Raises:
            DataLossError: It is damaged, or cannot be read.
        """
        whole: NDArray[Any] | None = None
        found = [(it, overlap(it.start, it.shape, start, shape)) for it in self._blocks]
        parts = [(it, shared, self._entry(it)) for it, shared in found if shared is not None]
        for it, shared, entry in parts:
            inside = tuple(at - first for at, first in zip(shared[0], it.start, strict=True))
            values = self._read(it, entry, inside, shared[1])
            if shared == (tuple(start), tuple(shape)):
                return values
            if whole is None:
                whole = np.empty(shape, self.dtype)
            place = tuple(at - first for at, first in zip(shared[0], start, strict=True))
            whole[block(place, shared[1])] = values
        # The blocks were found to make up the whole: there is none of an empty one alone.
        return np.empty(shape, self.dtype) if whole is None else whole

    def check(self) -> None:
        """Raise DataLossError unless its blocks are in their files."""
        for it in self._blocks:
            self._entry(it)

    def only_block(self) -> StoredBlock | None:
        """Return the block that is all of it; None if there is none."""
        if len(self._blocks) > 1 or not self._blocks or self._blocks[0].shape != self.shape:
            return None
        self._entry(self._blocks[0])
        return self._blocks[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self.read((0,) * len(self.shape), self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _entry(self, it: StoredBlock) -> Entry:
        file = it.file()
        entry = file.entries.get(it.key)
        if entry is None or (entry.dtype, entry.shape) != (self._spec.dtype, it.shape):
            what = f"it has no {it.key!r} of {self._spec.dtype}{[*it.shape]}"
            raise damaged(file.path.parent, f"{file.path.name}: {what}")
        return entry

    def _read(self, it: StoredBlock, entry: Entry, start: Start, shape: Start) -> NDArray[Any]:
        """The part of a block at ``start``, counted from the start of the block; it has items."""
        row_bytes = volume(it.shape[1:]) * self.dtype.itemsize
        first, count = (start[0], shape[0]) if shape else (0, 1)
        begin = entry.start + first * row_bytes
        data = it.file().data(begin, begin + count * row_bytes).view(self.dtype)
        if not shape:
            return data.reshape(())
        return data.reshape(count, *it.shape[1:])[block((0, *start[1:]), shape)]


def read_several(stored: Mapping[str, StoredArray]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield arrays by name, each whole, as they lie in their files; some share memory.

    Raises as ``StoredArray.read`` does.
    """
    files: dict[CheckpointFile, dict[str, str]] = {}
    rest = {}
    for name, array in stored.items():
        if (it := array.only_block()) is None:
            rest[name] = array
        else:
            files.setdefault(it.file(), {})[it.key] = name
    for file, names in files.items():
        for key, values in file.stream(names):
            yield names[key], values
    with reading_threads() as threads:
        yield from zip(rest, threads.map(np.asarray, rest.values()), strict=True)


def _blocks(
    name: str, array: NDArray[Any] | ShardedArray, held: Container[str] | None
) -> Iterable[tuple[Start | None, NDArray[Any]]]:
    """The blocks of ``array`` to write, with where each starts; None: this rank's own."""
    if isinstance(array, ShardedArray):
        if volume(array.shape) or held is not None:
            return [shard for shard in array.shards if shard.values.size]
        array = np.empty(array.shape, array.dtype)  # nobody holds an item of it
    if held is None:
        return [((0,) * array.ndim, array)]
    return [] if name in held else [(None, array)]


def _digest(array: NDArray[Any]) -> str:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.name}{list(array.shape)} {hashlib.sha256(data.data).hexdigest()}"


def _shown(spec: ArraySpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"
