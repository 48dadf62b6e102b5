"""The table of blocks: which rank has written which part of which array.

It has a row for each block, of 64-bit integers: the rank, and the start and the shape of the block,
with 0 and 1 in the place of dimensions that the array has not. The rows are sorted by array and
start, so that those of an array are found without the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.shards import make_up, make_up_each, overlap, volume
from runhooks.checkpoint.manifest import ArraySpec, spec_from
from runhooks.checkpoint.tensors import CheckpointFile, item_bytes

#: The name of the table in a file; in that of a rank, of the rows of its own blocks, in which the
#: number of the array in its listing stands for the rank.
TABLE = "blocks"

Start = tuple[int, ...]
Rows = NDArray[np.int64]
#: A number, of its rank or of its array, the start and the shape of a block.
Block = tuple[int, Start, Start]


class Overlap(NamedTuple):
    """What a block has of a part of its array.

    Attributes:
        rank: Who has written the block.
        start: The index of the first item of the block in the array.
        shape: The shape of the block.
        first: The index of the first item that both have, in the array.
        common: The shape of what both have.
    """

    rank: int
    start: Start
    shape: Start
    first: Start
    common: Start


_FEW = 8  # rows that are looked at one by one


class Listing(NamedTuple):
    """What a rank has to save; most ranks of a group have the same.

    Attributes:
        specs: The dtypes and shapes of the whole arrays.
        samples: Checksums of a few items of arrays that all ranks hold.
        own: The names of arrays of which it has other values than the chief.
    """

    specs: Mapping[str, ArraySpec]
    samples: Mapping[str, int]
    own: Sequence[str]

    @classmethod
    def of(cls, file: CheckpointFile) -> Listing:
        """Return the listing in the file of a rank."""
        about = file.about
        specs = {name: spec_from(*spec) for name, spec in about["arrays"].items()}
        return cls(specs, about["samples"], about["own"])

    def to_json(self) -> dict[str, Any]:
        """Return what ``of`` looks for in what a file says of itself."""
        return {"arrays": self.specs, "samples": self.samples, "own": self.own}


def rows_of(blocks: Sequence[Block]) -> Rows:
    """Return a row for each block."""
    most = max((len(start) for _, start, _ in blocks), default=0)
    rows = []
    for number, start, shape in blocks:
        more = most - len(start)
        rows.append((number, *start, *(0,) * more, *shape, *(1,) * more))
    return np.array(rows, np.int64).reshape(len(rows), 1 + 2 * most)


def together(
    ranks: Sequence[tuple[Listing, Rows]],
) -> tuple[dict[str, tuple[ArraySpec, int]], Rows]:
    """Return the arrays that the blocks of all ranks make up, and the table of these blocks.

    Args:
        ranks: The listing of each rank, one object for those that have the same, and its rows.

    Raises:
        ValueError: Blocks are missing or overlap, or ranks differ in what all should have.
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
    table = table[np.lexsort((_places(table, shaped[arrays]), arrays))]
    counts = np.bincount(arrays, minlength=len(specs))
    sound = make_up_each(shaped, counts, table[:, 1 : 1 + most], table[:, 1 + most :])
    own = {name for _, it in listings.values() for name in it.own}
    ends = np.cumsum(counts).tolist()
    for number, name in enumerate(specs):
        if not sound[number] and (counts[number] or name not in own):
            rows = table[ends[number] - int(counts[number]) : ends[number]]
            items = int(rows[:, 1 + most :].prod(axis=1).sum())
            raise _not_whole(name, specs[name], items)
    listed = zip(specs.items(), counts.tolist(), strict=True)
    return {name: (spec, count) for (name, spec), count in listed if count}, table


def _specs(listings: Iterable[tuple[int, Listing]]) -> dict[str, ArraySpec]:
    """The arrays of all ranks; ValueError if ranks differ in them."""
    specs: dict[str, ArraySpec] = {}
    seen: dict[str, int] = {}
    for rank, listing in listings:
        own = frozenset(listing.own)
        for name, spec in listing.specs.items():
            if name not in own and specs.setdefault(name, spec) != spec:
                raise ValueError(
                    f"{name!r} is {_shown(spec)} on rank {rank} and {_shown(specs[name])} on "
                    "another: one name must mean one array"
                )
        for name, sample in listing.samples.items():
            if seen.setdefault(name, sample) != sample:
                raise ValueError(
                    f"{name!r} has other values on rank {rank} than on another, but would be saved "
                    "once for all: make parts of a larger array DTensors, or bring the ranks "
                    "together before the checkpoint"
                )
    return specs


def _places(table: Rows, shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items are before the first of each block, in the array of the shape beside it."""
    places = np.zeros(len(table), np.int64)
    for axis in range(shapes.shape[1]):
        places = places * shapes[:, axis] + table[:, 1 + axis]
    return places


def _widened(rank: int, rows: Rows, most: int) -> Rows:
    """The rows of ``rank`` as those of the table, of arrays of up to ``most`` dimensions."""
    own = rows.shape[1] // 2
    wide = np.zeros((len(rows), 1 + 2 * most), np.int64)
    wide[:, 0] = rank
    wide[:, 1 : 1 + own] = rows[:, 1 : 1 + own]
    wide[:, 1 + most :] = 1
    wide[:, 1 + most : 1 + most + own] = rows[:, 1 + own :]
    return wide


def _not_whole(name: str, spec: ArraySpec, items: int) -> ValueError:
    wrong = "overlap" if items >= volume(spec.shape) else f"have {items} items"
    return ValueError(
        f"the shards of {name!r}, {_shown(spec)}, {wrong}: each item must be on one rank, or on all"
    )


def _shown(spec: ArraySpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


class BlockTable:
    """The table in the last file of a checkpoint, of which no more is read than is asked for.

    Args:
        file: The file.
        arrays: The arrays, as ``together`` has returned them.
        ranks: How many ranks have written blocks.

    Raises:
        ValueError: It is not a table of these arrays.
    """

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
        """Return the blocks that have items of a part of an array, and what each has of it.

        Args:
            name: The array.
            start: Where the part begins.
            shape: Its shape.

        Raises:
            ValueError: The blocks do not make up the part.
            DataLossError, OSError: As ``CheckpointFile.data``.
        """
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
    """Return what blocks have of a part; None if they are not all of it, each item once.

    Args:
        blocks: Blocks of an array.
        start: Where the part begins.
        shape: Its shape.
    """
    shared = ((it, overlap(it[1], it[2], start, shape)) for it in blocks)
    found = [Overlap(*it, *both) for it, both in shared if both is not None]
    parts = [(tuple(map(sub, it.first, start)), it.common) for it in found]
    return found if make_up(shape, parts) else None


def _covering_rows(rows: Rows, start: Sequence[int], shape: Sequence[int]) -> list[Overlap] | None:
    """As ``covering``, of rows without the columns of dimensions that the array has not."""
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
