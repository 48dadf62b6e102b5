"""Blocks of arrays: what each rank writes, and how any part of all is read.

A table has a row of 64-bit integers for each block: the rank, the start and the shape, with 0 and 1
for dimensions that the array has not. Rows are sorted by array and start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.arrays.shards import (
    ShardedArray,
    block,
    key_of,
    make_up,
    make_up_each,
    overlap,
    volume,
)
from runhooks.checkpoint.manifest import ArraySpec, spec_from
from runhooks.checkpoint.tensors import (
    STATES,
    CheckpointFile,
    damaged,
    item_bytes,
    spec_of,
)
from runhooks.stores.interruption import reading_threads

#: The name of the table in a file; in that of a rank, rows begin with the number of the array in
#: its listing.
TABLE = "blocks"

Start = tuple[int, ...]
Rows = NDArray[np.int64]
#: The number of the rank or the array of a block, its start and its shape.
Block = tuple[int, Start, Start]


class Overlap(NamedTuple):
    """What a block has of a part of its array: ``common``, a shape, from ``first`` on."""

    rank: int
    start: Start
    shape: Start
    first: Start
    common: Start


_FEW = 8  # rows, looked at one by one


class Listing(NamedTuple):
    """What a rank has to save.

    ``samples``: checksums of a few items of arrays that all ranks hold. ``own``: names of arrays
    with other values than the chief's.
    """

    specs: Mapping[str, ArraySpec]
    samples: Mapping[str, int]
    own: Sequence[str]

    @classmethod
    def of(cls, file: CheckpointFile) -> Listing:
        about = file.about
        specs = {name: spec_from(*spec) for name, spec in about["arrays"].items()}
        return cls(specs, about["samples"], about["own"])

    def to_json(self) -> dict[str, Any]:
        return {"arrays": self.specs, "samples": self.samples, "own": self.own}


def rows_of(blocks: Sequence[Block]) -> Rows:
    most = max((len(start) for _, start, _ in blocks), default=0)
    rows = []
    for number, start, shape in blocks:
        more = most - len(start)
        rows.append((number, *start, *(0,) * more, *shape, *(1,) * more))
    return np.array(rows, np.int64).reshape(len(rows), 1 + 2 * most)


def together(
    ranks: Sequence[tuple[Listing, Rows]],
) -> tuple[dict[str, tuple[ArraySpec, int]], Rows]:
    """Return the arrays that all blocks make up, and the table of the blocks.

    Ranks with the same listing share one object. Raises ValueError if blocks are missing or
    overlap, or ranks differ in what all should have.
    """
    listings = {id(it): (rank, it) for rank, (it, _) in reversed([*enumerate(ranks)])}
    specs = _specs(reversed(listings.values()))
    numbers = {name: number for number, name in enumerate(specs)}
    known = {
        key: np.array([numbers.get(name, -1) for name in it.specs], np.int64)
        for key, (_, it) in listings.items()
    }
    most = max((len(spec.shape) for spec in specs.values()), default=0)
    arrays = np.concatenate([known[id(it)][rows[:, 0]] for it, rows in ranks])
    table = np.concatenate([_widened(rank, rows, most) for rank, (_, rows) in enumerate(ranks)])
    shapes = [(*it.shape, *(1,) * (most - len(it.shape))) for it in specs.values()]
    shaped = np.array(shapes, np.int64).reshape(len(specs), most)
    table = table[np.lexsort((*table[:, most:0:-1].T, arrays))]
    counts = np.bincount(arrays, minlength=len(specs))
    sound = make_up_each(shaped, counts, table[:, 1 : 1 + most], table[:, 1 + most :])
    own = {name for _, it in listings.values() for name in it.own}
    ends = np.cumsum(counts).tolist()
    for number, name in enumerate(specs):
        if not sound[number] and (counts[number] or name not in own):
            rows = table[ends[number] - int(counts[number]) : ends[number]]
            items = int(rows[:, 1 + most :].prod(axis=1).sum())
            spec = specs[name]
            wrong = "overlap" if items >= volume(spec.shape) else f"have {items} items"
            raise ValueError(
                f"the shards of {name!r}, {spec}, {wrong}: each item must be on one rank, or on all"
            )
    listed = zip(specs.items(), counts.tolist(), strict=True)
    return {name: (spec, count) for (name, spec), count in listed if count}, table


def _specs(listings: Iterable[tuple[int, Listing]]) -> dict[str, ArraySpec]:
    specs: dict[str, ArraySpec] = {}
    seen: dict[str, int] = {}
    for rank, listing in listings:
        own = frozenset(listing.own)
        for name, spec in listing.specs.items():
            if name not in own and specs.setdefault(name, spec) != spec:
                raise ValueError(
                    f"{name!r} is {spec} on rank {rank} and {specs[name]} on "
                    "another: one name must mean one array"
                )
        for name, sample in listing.samples.items():
            if seen.setdefault(name, sample) != sample:
                raise ValueError(
                    f"{name!r} has other values on rank {rank} than on another, but would be saved "
                    "once for all: make parts of a larger array DTensors, or make the ranks agree"
                )
    return specs


def _widened(rank: int, rows: Rows, most: int) -> Rows:
    own = rows.shape[1] // 2
    wide = np.zeros((len(rows), 1 + 2 * most), np.int64)
    wide[:, 0] = rank
    wide[:, 1 : 1 + own] = rows[:, 1 : 1 + own]
    wide[:, 1 + most :] = 1
    wide[:, 1 + most : 1 + most + own] = rows[:, 1 + own :]
    return wide


class BlockTable:
    """The table in the last file of a checkpoint. Raises ValueError."""

    def __init__(
        self, file: CheckpointFile, arrays: Mapping[str, tuple[ArraySpec, int]], ranks: int
    ) -> None:
        self._file = file
        self._ranks = ranks
        self._most = max((len(spec.shape) for spec, _ in arrays.values()), default=0)
        ends = accumulate(count for _, count in arrays.values())
        listed = zip(arrays.items(), ends, strict=True)
        self._arrays = {name: (it.shape, end - count, end) for (name, (it, count)), end in listed}
        for spec, _ in arrays.values():
            item_bytes(spec.dtype)
        entry = file.entries.get(TABLE)
        if entry is None:
            raise ValueError("it has no table of blocks")
        count = sum(count for _, count in arrays.values())
        *form, self._start, _ = entry
        if form != ["int64", (count, 1 + 2 * self._most)]:
            raise ValueError("its table of blocks makes no sense")

    def overlaps(self, name: str, start: Sequence[int], shape: Sequence[int]) -> list[Overlap]:
        """Return what blocks have of a part of an array; ValueError if not all of it."""
        whole, first, last = self._arrays[name]
        ndim, most, row_bytes = len(whole), self._most, 8 * (1 + 2 * self._most)
        data = self._file.data(self._start + first * row_bytes, self._start + last * row_bytes)
        rows = data.view("<i8").reshape(last - first, 1 + 2 * most)
        if rows.size and (rows.min() < 0 or rows[:, 0].max() >= self._ranks):
            raise ValueError("its table of blocks makes no sense")
        rows = rows[:, [0, *range(1, 1 + ndim), *range(1 + most, 1 + most + ndim)]]
        found = _covering_rows(rows, start, shape)
        if found is None:
            raise ValueError(f"its blocks of {name!r} do not make up the array")
        return found


def covering(
    blocks: Iterable[Block], start: Sequence[int], shape: Sequence[int]
) -> list[Overlap] | None:
    """Return what blocks have of a part; None if not all of it, each item once."""
    shared = ((it, overlap(it[1], it[2], start, shape)) for it in blocks)
    found = [Overlap(*it, *both) for it, both in shared if both is not None]
    parts = [(tuple(map(sub, it.first, start)), it.common) for it in found]
    return found if make_up(shape, parts) else None


def _covering_rows(rows: Rows, start: Sequence[int], shape: Sequence[int]) -> list[Overlap] | None:
    """As ``covering``, of rows of just the dimensions of the array."""
    ndim = len(start)
    if len(rows) <= _FEW:
        listed = ((it[0], tuple(it[1 : 1 + ndim]), tuple(it[1 + ndim :])) for it in rows.tolist())
        return covering(listed, start, shape)
    at, part = np.array(start, np.int64), np.array(shape, np.int64)
    firsts = np.maximum(rows[:, 1 : 1 + ndim], at)
    common = np.minimum(rows[:, 1 : 1 + ndim] + rows[:, 1 + ndim :], at + part) - firsts
    found = (common > 0).all(axis=1)
    rows, firsts, common = rows[found], firsts[found], common[found]
    if not make_up_each(part[np.newaxis], np.array([len(rows)]), firsts - at, common)[0]:
        return None
    columns = rows[:, 1 : 1 + ndim], rows[:, 1 + ndim :], firsts, common
    places = (map(tuple, it.tolist()) for it in columns)
    return list(map(Overlap._make, zip(rows[:, 0].tolist(), *places, strict=True)))


#: Ends the key of a whole array of a rank that differs from the chief's.
OWN = "@rank"


RankArrays = Mapping[str, NDArray[Any] | ShardedArray]


def digests_of(content: RankArrays) -> dict[str, str]:
    digests = {}
    for name, array in content.items():
        if not isinstance(array, ShardedArray):
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            digest = hashlib.sha256(data.data).hexdigest()
            digests[name] = f"{array.dtype.name}{list(array.shape)} {digest}"
    return digests


def blocks_to_write(
    content: RankArrays, held: Container[str] | None
) -> tuple[dict[str, NDArray[Any]], Listing]:
    """Return what a rank writes, by key, with a table of the blocks, and its listing.

    ``held``: the arrays that the chief has, too, and writes. None: this is the chief.
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
    """Return the starts and shapes of blocks by array."""
    found: dict[str, list[tuple[Start, Start]]] = {}
    for key, (_, shape, *_) in file.entries.items():
        if not key.startswith(STATES) and not key.endswith(OWN) and key != TABLE:
            name, _, start = key.rpartition("@")
            at = tuple(map(int, filter(None, start.split(","))))
            if len(at) != len(shape) or min(at, default=0) < 0:
                raise ValueError(f"it has {key!r} of the shape {[*shape]}")
            found.setdefault(name, []).append((at, shape))
    return found


class StoredArray:
    """An array of a checkpoint, of which no more is read than is asked for; NumPy reads it whole.

    ``find`` returns the blocks of a part, each in its rank's file under the ``key`` of its start.
    """

    def __init__(
        self,
        spec: ArraySpec,
        find: Callable[[Start, Start], list[Overlap]],
        file: Callable[[int], CheckpointFile],
        key: Callable[[Start], str],
        *,
        is_far: bool = False,
    ) -> None:
        self._spec = spec
        self._find = find
        self._file = file
        self._key = key
        self.shape = spec.shape
        self.dtype = dtype_named(spec.dtype)
        self.is_far = is_far

    @classmethod
    def at(cls, file: CheckpointFile, key: str, spec: ArraySpec) -> StoredArray:
        whole = 0, (0,) * len(spec.shape), spec.shape
        return cls(spec, lambda *part: [Overlap(*whole, *part)], lambda _: file, lambda _: key)

    def read(self, start: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
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
        assert whole is not None
        return whole

    def check(self) -> None:
        for it in self._blocks():
            self._place(it)

    def only_block(self) -> tuple[CheckpointFile, str] | None:
        """Return the file and the key of the block that is all of it, if any."""
        blocks = self._blocks()
        if len(blocks) != 1 or blocks[0].shape != self.shape:
            return None
        return self._place(blocks[0])[:2]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self.read((0,) * len(self.shape), self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _blocks(self) -> list[Overlap]:
        return self._find((0,) * len(self.shape), self.shape)

    def _place(self, it: Overlap) -> tuple[CheckpointFile, str, int]:
        file, key = self._file(it.rank), self._key(it.start)
        entry = file.entries.get(key)
        if entry is None or entry[:2] != (self._spec.dtype, it.shape):
            what = f"it has no {key!r} of {ArraySpec(self._spec.dtype, it.shape)}"
            raise damaged(file.path.parent, f"{file.path.name}: {what}")
        return file, key, entry[2]

    def _read(self, it: Overlap) -> NDArray[Any]:
        file, _, begin = self._place(it)
        if it.common == it.shape:
            end = begin + volume(it.shape) * self.dtype.itemsize
            return file.data(begin, end).view(self.dtype).reshape(it.shape)
        inside = tuple(map(sub, it.first, it.start))
        row_bytes = volume(it.shape[1:]) * self.dtype.itemsize
        count = it.common[0]
        begin += inside[0] * row_bytes
        data = file.data(begin, begin + count * row_bytes).view(self.dtype)
        return data.reshape(count, *it.shape[1:])[block((0, *inside[1:]), it.common)]


def read_several(stored: Mapping[str, StoredArray]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield arrays by name, each whole, as they lie in their files; some share memory."""
    files: dict[CheckpointFile, dict[str, str]] = {}
    rest = {}
    for name, array in stored.items():
        if (it := array.only_block()) is None:
            rest[name] = array
        else:
            files.setdefault(it[0], {})[it[1]] = name
    for file, names in files.items():
        for key, values in file.stream(names):
            yield names[key], values
    with reading_threads() as threads:
        yield from zip(rest, threads.map(np.asarray, rest.values()), strict=True)


def _blocks(
    name: str, array: NDArray[Any] | ShardedArray, held: Container[str] | None
) -> Iterable[tuple[Start | None, NDArray[Any]]]:
    """The blocks to write, and where each starts; None: it is this rank's own."""
    if isinstance(array, ShardedArray):
        if volume(array.shape) or held is not None:
            return [shard for shard in array.shards if shard.values.size]
        array = np.empty(array.shape, array.dtype)
    if held is None:
        return [((0,) * array.ndim, array)]
    return [] if name in held else [(None, array)]
