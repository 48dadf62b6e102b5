"""Arrays that several processes share: what each writes and reads."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import add
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from runhooks.stores.interruption import reading_threads

Array = np.ndarray[Any, np.dtype[Any]]

_SAMPLE_ITEMS = 16
_LARGE_BYTES = 1 << 20
_TOGETHER = 16  # small arrays

_Wanted = TypeVar("_Wanted")
_Loaded = TypeVar("_Loaded")


class Shard(NamedTuple):
    start: tuple[int, ...]  # the index of its first item, one for each dimension
    values: Any


class ShardedArray(NamedTuple):
    """An array of which this process has to write some blocks, or none.

    Attributes:
        shape: That of the whole array.
        dtype: Its dtype on the host.
        shards: The blocks; those of all processes have each item once.
        sample: A few items of an array that all hold in whole, to see that they agree; else None.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shards: tuple[Shard, ...]
    sample: Any = None


class ArraySource(Protocol):
    """An array that can be read block by block."""

    @property
    def is_far(self) -> bool:
        """Whether each ``read`` waits for a store."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, start: Sequence[int], shape: Sequence[int]) -> Array:
        """Return the block of ``shape`` at ``start``."""
        ...


def read_block(source: ArraySource | Array, start: Sequence[int], shape: Sequence[int]) -> Array:
    """Return the block of ``shape`` at ``start``, which shares the memory of an array."""
    if isinstance(source, np.ndarray | np.generic):
        return source[block(start, shape)]
    return source.read(start, shape)


def loaded_from(
    arrays: Mapping[str, Any],
    load: Callable[[_Wanted], _Loaded],
    wanted: Iterable[_Wanted],
    name_of: Callable[[_Wanted], str] = str,
) -> list[_Loaded]:
    """Return what ``load`` makes of each of ``wanted``, maybe in threads.

    ``name_of``: the array that it reads.
    """
    listed = list(wanted)
    here: list[int] = []
    parts: list[list[int]] = []
    together: list[int] = []
    for number, it in enumerate(listed):
        array = arrays[name_of(it)]
        if isinstance(array, np.ndarray | np.generic):
            here.append(number)
        elif volume(array.shape) * array.dtype.itemsize >= _LARGE_BYTES:
            parts.append([number])
        else:
            (together if array.is_far else here).append(number)
    parts += [together[at : at + _TOGETHER] for at in range(0, len(together), _TOGETHER)]
    found = {number: load(listed[number]) for number in here}
    if parts:
        with reading_threads() as threads:
            loaded = threads.map(lambda part: [load(listed[it]) for it in part], parts)
            for part, of_part in zip(parts, loaded, strict=True):
                found.update(zip(part, of_part, strict=True))
    return [found[number] for number in range(len(listed))]


class Share(NamedTuple):
    """Which of ``size`` processes, from 0, this is."""

    rank: int
    size: int

    def rows(self, arrays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the first row of each array to write, and the one after the last.

        All processes write about as many bytes. ``arrays``: numbers of rows, and bytes of a row.
        """
        listed = list(arrays)
        total = sum(count * row_bytes for count, row_bytes in listed)
        begin, end = (total * rank // self.size for rank in (self.rank, self.rank + 1))
        at, found = 0, []
        for count, row_bytes in listed:
            first, last = (
                min(max(-((at - edge) // row_bytes), 0), count) if row_bytes else 0
                for edge in (begin, end)
            )
            found.append((first, last))
            at += count * row_bytes
        return found


def block(start: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, start, map(add, start, shape)))


def overlap(
    start: Sequence[int], shape: Sequence[int], other_start: Sequence[int], other: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the start and shape of what two blocks share, or None."""
    first = tuple(map(max, start, other_start))
    ends = zip(start, shape, other_start, other, strict=True)
    last = tuple(min(a + size, b + other_size) for a, size, b, other_size in ends)
    size = tuple(end - begin for begin, end in zip(first, last, strict=True))
    return None if any(it <= 0 for it in size) else (first, size)


def make_up(shape: Sequence[int], blocks: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Return whether ``blocks``, by start and shape, cover each item once."""
    listed = list(blocks)
    if len(listed) <= _FEW:
        pairs = ((*a, *b) for a, b in combinations(listed, 2))
        whole = sum(volume(size) for _, size in listed) == volume(shape)
        return whole and all(overlap(*it) is None for it in pairs) and _inside(listed, shape)
    starts, sizes = (
        np.array([it[which] for it in listed], np.int64).reshape(len(listed), len(shape))
        for which in (0, 1)
    )
    shapes = np.array([[*shape]], np.int64).reshape(1, len(shape))
    return bool(make_up_each(shapes, np.array([len(listed)]), starts, sizes)[0])


def _inside(blocks: Iterable[tuple[Sequence[int], Sequence[int]]], shape: Sequence[int]) -> bool:
    return all(
        at >= 0 and size >= 0 and at + size <= most
        for start, of_block in blocks
        for at, size, most in zip(start, of_block, shape, strict=True)
    )


_FEW = 8  # blocks, which are compared pair by pair
_PRIME = np.uint64((1 << 31) - 1)  # products of two numbers below it have 62 bits
_DRAWS = 2


def make_up_each(shapes: Array, counts: Array, starts: Array, sizes: Array) -> Array:
    """As ``make_up``, for each of several arrays, in O(blocks).

    Args:
        shapes: ``[arrays, dimensions]``, int64.
        counts: The number of blocks of each array.
        starts: The start of each block, those of an array together, ``[blocks, dimensions]``.
        sizes: The shape of each block.
    """
    rooms = np.repeat(shapes, counts, axis=0)
    outside = ((starts < 0) | (sizes < 0) | (starts > rooms - sizes)).any(axis=1)
    ends = np.cumsum(counts)
    sound: Array = _sums(np.array(outside, np.uint64), ends) == 0
    # Each axis is stretched at random, modulo a prime. Blocks that overlap and leave a gap have
    # another volume, but for a chance of 1 in 2**62, times the square of ``dimensions``.
    for _ in range(_DRAWS):
        of_blocks: Array = np.ones(len(starts), np.uint64)
        of_arrays: Array = np.ones(len(shapes), np.uint64)
        for axis in range(shapes.shape[1]):
            key = np.uint64(random.SystemRandom().getrandbits(64))  # not the one that trains
            firsts, lengths, whole = starts[:, axis], sizes[:, axis], shapes[:, axis]
            of_blocks *= _stretched(key, firsts, firsts + lengths)
            of_blocks %= _PRIME
            of_arrays *= _stretched(key, np.zeros_like(whole), whole)
            of_arrays %= _PRIME
        sound = sound & (_sums(of_blocks, ends) % _PRIME == of_arrays)
    return sound


def _sums(values: Array, ends: Array) -> Array:
    until = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    return np.diff(until[np.concatenate([np.zeros(1, np.int64), ends])])


def _stretched(key: np.uint64, first: Array, last: Array) -> Array:
    return (_drawn(key, last) + _PRIME - _drawn(key, first)) % _PRIME


def _drawn(key: np.uint64, at: Array) -> Array:
    """Pseudorandom numbers below the prime: Steele's SplitMix64."""
    bits = at.astype(np.int64, copy=False).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Array = (bits ^ (bits >> np.uint64(31))) % _PRIME
    return found


def key_of(name: str, start: Sequence[int]) -> str:
    return f"{name}@{','.join(map(str, start))}"


def parts_of_replicas(
    arrays: Mapping[str, Any], forms: Mapping[str, tuple[tuple[int, ...], Any]], share: Share
) -> dict[str, ShardedArray]:
    """Return what this process has to write of arrays that all hold in whole: slices of these.

    ``forms``: the shape of each, and its dtype on the host.
    """
    counts = [
        (shape[0] if shape else 1, volume(shape[1:]) * dtype.itemsize)
        for shape, dtype in (forms[name] for name in arrays)
    ]
    found = {}
    for (name, array), (first, last) in zip(arrays.items(), share.rows(counts), strict=True):
        shape, dtype = forms[name]
        start = (first, *(0 for _ in shape[1:])) if shape else ()
        rows = array[first:last] if array.ndim else array
        shards = (Shard(start, rows),) if first < last else ()
        found[name] = ShardedArray(shape, dtype, shards, _sample(array))
    return found


def to_host(
    copy: Callable[[list[Any], list[Array | None] | None], list[Array]],
    arrays: Mapping[str, Any],
    sharded: Mapping[str, ShardedArray],
    into: Mapping[str, Array] | None,
) -> dict[str, Any]:
    """Return ``arrays``, or what is ``sharded`` of them, on the host.

    ``copy``: ``to_host`` of their library. ``into``: as for that, by name and by ``key_of``.
    """
    parts = {**arrays, **sharded}
    pairs = list(_by_key(parts))
    places = None if into is None else [into.get(key) for key, _ in pairs]
    host = iter(copy([values for _, values in pairs], places))
    sampled = [it.sample for it in sharded.values() if it.sample is not None]
    samples = iter([np.array(it) for it in copy(sampled, None)])
    copied: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, ShardedArray):
            shards = tuple(Shard(it.start, next(host)) for it in part.shards)
            sample = None if part.sample is None else next(samples)
            copied[name] = part._replace(shards=shards, sample=sample)
        else:
            copied[name] = next(host)
    return copied


def by_key(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return arrays and blocks by the keys of ``into`` of ``to_host``."""
    return dict(_by_key(arrays))


def _by_key(arrays: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, array in arrays.items():
        if isinstance(array, ShardedArray):
            yield from ((key_of(name, it.start), it.values) for it in array.shards)
        else:
            yield name, array


def volume(shape: Sequence[int]) -> int:
    return math.prod(shape)


def _sample(array: Any) -> Any:
    if not array.ndim or not volume(array.shape):
        return array
    return array[(0,) * (array.ndim - 1)][:_SAMPLE_ITEMS]
