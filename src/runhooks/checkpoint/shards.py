"""Blocks of arrays: what each rank writes of a checkpoint, and how any part of all is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.arrays.shards import ShardedArray, block, key_of, volume
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
    for key, (_, shape, *_) in file.entries.items():
        if not key.startswith(STATES) and not key.endswith(OWN) and key != TABLE:
            name, _, start = key.rpartition("@")
            at = tuple(map(int, filter(None, start.split(","))))
            if len(at) != len(shape) or min(at, default=0) < 0:
                raise ValueError(f"it has {key!r} of the shape {[*shape]}")
            found.setdefault(name, []).append((at, shape))
    return found


class StoredBlock(NamedTuple):
    """A block of an array in a file, and what it has of a part of the array.

    Attributes:
        file: Returns the file, opened.
        key: Its name there.
        start: The index of the first item of the block in the array.
        shape: The shape of the block.
        first: The index of the first item that both have, in the array.
        common: The shape of what both have.
    """

    file: Callable[[], CheckpointFile]
    key: str
    start: Start
    shape: Start
    first: Start
    common: Start


class StoredArray:
    """An array of a checkpoint, of which no more is read than is asked for.

    What is read is compared with its checksums. NumPy reads it whole.

    Args:
        spec: Its dtype and shape.
        find: Returns the blocks that make up the part of a start and a shape.
        is_far: Whether it is in a store.
    """

    def __init__(
        self,
        spec: ArraySpec,
        find: Callable[[Start, Start], list[StoredBlock]],
        *,
        is_far: bool = False,
    ) -> None:
        self._spec = spec
        self._find = find
        self.shape = spec.shape
        self.dtype = dtype_named(spec.dtype)
        self.is_far = is_far

    @classmethod
    def at(cls, file: Callable[[], CheckpointFile], key: str, spec: ArraySpec) -> StoredArray:
        """Return the array that is a single block of a file."""
        whole = file, key, (0,) * len(spec.shape), spec.shape
        return cls(spec, lambda start, shape: [StoredBlock(*whole, start, shape)])

    def read(self, start: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
        """Return the block of ``shape`` that begins at ``start``.

        Raises:
            DataLossError: It is damaged, or cannot be read.
        """
        part = tuple(start), tuple(shape)
        blocks = self._find(*part)
        if not volume(shape):
            return np.empty(shape, self.dtype)
        whole: NDArray[Any] | None = None
        for it in blocks:
            values = self._read(it)
            if it[-2:] == part:
                return values
            if whole is None:
                whole = np.empty(shape, self.dtype)
            whole[block(tuple(map(sub, it.first, start)), it.common)] = values
        assert whole is not None  # the blocks were found to make up the part
        return whole

    def check(self) -> None:
        """Raise DataLossError unless its blocks are in their files, and make it up."""
        for it in self._blocks():
            self._entry(it, it.file())

    def only_block(self) -> StoredBlock | None:
        """Return the block that is all of it; None if there is none."""
        blocks = self._blocks()
        if len(blocks) != 1 or blocks[0].shape != self.shape:
            return None
        self._entry(blocks[0], blocks[0].file())
        return blocks[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self.read((0,) * len(self.shape), self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _blocks(self) -> list[StoredBlock]:
        return self._find((0,) * len(self.shape), self.shape)

    def _entry(self, it: StoredBlock, file: CheckpointFile) -> Entry:
        entry = file.entries.get(it.key)
        if entry is None or entry[:2] != (self._spec.dtype, it.shape):
            what = f"it has no {it.key!r} of {self._spec.dtype}{[*it.shape]}"
            raise damaged(file.path.parent, f"{file.path.name}: {what}")
        return entry

    def _read(self, it: StoredBlock) -> NDArray[Any]:
        """What a block has of the part, at least one item."""
        file = it.file()
        *_, begin, end = self._entry(it, file)
        if it.common == it.shape:
            return file.data(begin, end).view(self.dtype).reshape(it.shape)
        inside = tuple(map(sub, it.first, it.start))
        row_bytes = volume(it.shape[1:]) * self.dtype.itemsize
        count = it.common[0]
        begin += inside[0] * row_bytes
        data = file.data(begin, begin + count * row_bytes).view(self.dtype)
        return data.reshape(count, *it.shape[1:])[block((0, *inside[1:]), it.common)]


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
