"""Blocks of arrays: what each rank writes of a checkpoint, and how any part of all is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.arrays.shards import ShardedArray, block, key_of, overlap, volume
from runhooks.checkpoint.manifest import ArraySpec
from runhooks.checkpoint.table import TABLE, Block, Listing, Start, rows_of
from runhooks.checkpoint.tensors import STATES, CheckpointFile, Entry, damaged, spec_of
from runhooks.stores.interruption import reading_threads

#: The end of the key of a whole array that a rank has written because it differs from the chief's.
OWN = "@rank"

#: What a rank saves by name: arrays of its own, which others may have too, and shards.
RankArrays = Mapping[str, NDArray[Any] | ShardedArray]


def digests_of(content: RankArrays) -> dict[str, str]:
    """Return a digest of each array that is not sharded, by name."""
    whole = {name: it for name, it in content.items() if not isinstance(it, ShardedArray)}
    return {name: _digest(array) for name, array in whole.items()}


def blocks_to_write(
    content: RankArrays, held: Container[str] | None
) -> tuple[dict[str, NDArray[Any]], Listing]:
    """Return the blocks that a rank writes, by their keys, with a table of them, and its listing.

    Args:
        content: Its arrays and shards.
        held: The names of arrays that the chief has, too, and writes. None: this is the chief.
    """
    values: dict[str, NDArray[Any]] = {}
    samples: dict[str, int] = {}
    blocks: list[Block] = []
    own: list[str] = []
    for number, (name, array) in enumerate(content.items()):
        for start, block_of in _blocks(name, array, held):
            if start is None:
                own.append(name)
                values[name + OWN] = block_of
            else:
                blocks.append((number, start, block_of.shape))
                values[key_of(name, start)] = block_of
        if isinstance(array, ShardedArray) and array.sample is not None and volume(array.shape):
            samples[name] = int(google_crc32c.value(np.ascontiguousarray(array.sample).tobytes()))
    if blocks:
        values[TABLE] = rows_of(blocks)
    return values, Listing({name: spec_of(it) for name, it in content.items()}, samples, own)


def blocks_in(file: CheckpointFile) -> dict[str, list[tuple[Start, Start]]]:
    """Return the start and the shape of each block in the file of a rank, by array.

    Raises ValueError if a name in it makes no sense.
    """
    found: dict[str, list[tuple[Start, Start]]] = {}
    for key, entry in file.entries.items():
        if not key.startswith(STATES) and not key.endswith(OWN) and key != TABLE:
            name, _, start = key.rpartition("@")
            at = tuple(map(int, filter(None, start.split(","))))
            if len(at) != len(entry.shape) or min(at, default=0) < 0:
                raise ValueError(f"it has {key!r} of the shape {[*entry.shape]}")
            found.setdefault(name, []).append((at, entry.shape))
    return found


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


class StoredArray:
    """An array of a checkpoint, of which no more is read than is asked for.

    What is read is compared with its checksums. NumPy reads it whole.

    Args:
        spec: Its dtype and shape.
        find: Returns the blocks that make up the part of a start and a shape.
    """

    def __init__(self, spec: ArraySpec, find: Callable[[Start, Start], list[StoredBlock]]) -> None:
        self._spec = spec
        self._find = find
        self.shape = spec.shape
        self.dtype = dtype_named(spec.dtype)

    @classmethod
    def at(cls, file: Callable[[], CheckpointFile], key: str, spec: ArraySpec) -> StoredArray:
        """Return the array that is a single block of a file."""
        whole = StoredBlock(file, key, (0,) * len(spec.shape), spec.shape)
        return cls(spec, lambda start, shape: [whole])

    def read(self, start: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
        """Return the block of ``shape`` that begins at ``start``.

        Raises:
            DataLossError: It is damaged, or cannot be read.
        """
        whole: NDArray[Any] | None = None
        blocks = self._find(tuple(start), tuple(shape))
        found = [(it, overlap(it.start, it.shape, start, shape)) for it in blocks]
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
        # The blocks were found to make up the part: there is none of an empty one alone.
        return np.empty(shape, self.dtype) if whole is None else whole

    def check(self) -> None:
        """Raise DataLossError unless its blocks are in their files, and make it up."""
        for it in self._blocks():
            self._entry(it)

    def only_block(self) -> StoredBlock | None:
        """Return the block that is all of it; None if there is none."""
        blocks = self._blocks()
        if len(blocks) != 1 or blocks[0].shape != self.shape:
            return None
        self._entry(blocks[0])
        return blocks[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self.read((0,) * len(self.shape), self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _blocks(self) -> list[StoredBlock]:
        return self._find((0,) * len(self.shape), self.shape)

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
