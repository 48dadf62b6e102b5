"""Writes what one rank has of a checkpoint; finds out whether all ranks together have it all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.shards import ShardedArray, make_up, volume
from runhooks.checkpoint import arrays
from runhooks.checkpoint.draft import Draft
from runhooks.checkpoint.manifest import ArraySpec, FileDigest, files_of
from runhooks.checkpoint.shard_index import IndexedFile, ShardIndex, StoredShard
from runhooks.checkpoint.states import EncodedStates

#: What a rank saves by name: arrays of its own, which others may have too, and shards.
RankArrays = Mapping[str, NDArray[Any] | ShardedArray]


def digests_of(content: RankArrays) -> dict[str, str]:
    """Return a digest of each array that is not sharded, by name."""
    whole = {name: it for name, it in content.items() if not isinstance(it, ShardedArray)}
    return {name: _digest(array) for name, array in whole.items()}


def write_rank(
    draft: Draft,
    rank: int,
    content: RankArrays,
    states: EncodedStates,
    of_chief: Mapping[str, str] | None,
) -> dict[str, FileDigest]:
    """Write the files of ``rank`` into ``draft``; return their digests by name.

    Args:
        draft: The checkpoint that is being written.
        rank: The rank that writes.
        content: Its arrays and shards.
        states: Its states.
        of_chief: What ``digests_of`` gives the chief: an array that it has too is not written
            again. None: this is the chief.

    Raises:
        OSError: A file cannot be written.
    """
    shards: dict[str, StoredShard] = {}
    values: dict[str, NDArray[Any]] = {}
    samples: dict[str, int] = {}
    for name, array in content.items():
        spec = arrays.spec_of(array)
        for start, block in _blocks(name, array, of_chief):
            shard = StoredShard(name, spec, start, block.shape, 0, ())
            shards[shard.key], values[shard.key] = shard, block
        if isinstance(array, ShardedArray) and array.sample is not None and volume(array.shape):
            samples[name] = _checksum(array.sample)
    names = files_of(rank)
    file = IndexedFile(shards, values)
    written = {names.variables: draft.write(names.variables, file.pieces())}
    pieces: dict[str, Iterable[bytes | NDArray[np.uint8]]] = {
        names.shards: [file.index(samples).to_bytes()],
        names.states: [states.text],
    }
    if states.arrays:
        pieces[names.state_arrays] = arrays.encode(states.arrays)
    return {**written, **{it: draft.write(it, part) for it, part in pieces.items()}}


def together(indexes: Mapping[int, ShardIndex]) -> dict[str, ArraySpec]:
    """Return the arrays that the shards of all ranks make up.

    Args:
        indexes: What each rank has written.

    Raises:
        ValueError: Shards are missing or overlap, or ranks differ in what all should have.
    """
    specs: dict[str, ArraySpec] = {}
    blocks: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    seen: dict[str, int] = {}
    written: set[str] = set()
    for rank, index in indexes.items():
        for shard in index.shards:
            if shard.start is None:
                continue
            if specs.setdefault(shard.name, shard.spec) != shard.spec:
                raise ValueError(
                    f"{shard.name!r} is {_shown(shard.spec)} on rank {rank} and "
                    f"{_shown(specs[shard.name])} on another: one name must mean one array"
                )
            if shard.key in written:
                raise ValueError(f"rank {rank} has written {shard.key!r}, and so has another")
            written.add(shard.key)
            blocks.setdefault(shard.name, []).append((shard.start, shard.shape))
        for name, sample in index.samples.items():
            if seen.setdefault(name, sample) != sample:
                raise ValueError(
                    f"{name!r} has other values on rank {rank} than on another, but would be saved "
                    "once for all: make parts of a larger array DTensors, or bring the ranks "
                    "together before the checkpoint"
                )
    for name, spec in specs.items():
        if not make_up(spec.shape, blocks[name]):
            items = sum(volume(shape) for _, shape in blocks[name])
            wrong = "overlap" if items >= volume(spec.shape) else f"have {items} items"
            raise ValueError(
                f"the shards of {name!r}, {_shown(spec)}, {wrong}: each item must be on one rank, "
                "or on all"
            )
    return specs


def _blocks(
    name: str, array: NDArray[Any] | ShardedArray, of_chief: Mapping[str, str] | None
) -> Iterable[tuple[tuple[int, ...] | None, NDArray[Any]]]:
    """The blocks of ``array`` to write, with where each starts; None: this rank's own."""
    if isinstance(array, ShardedArray):
        if volume(array.shape) or of_chief is not None:
            return [shard for shard in array.shards if shard.values.size]
        array = np.empty(array.shape, array.dtype)  # nobody holds an item of it
    if of_chief is None:
        return [((0,) * array.ndim, array)]
    return [] if of_chief.get(name) == _digest(array) else [(None, array)]


def _digest(array: NDArray[Any]) -> str:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.name}{list(array.shape)} {hashlib.sha256(data.data).hexdigest()}"


def _checksum(array: NDArray[Any]) -> int:
    return int(google_crc32c.value(np.ascontiguousarray(array).tobytes()))


def _shown(spec: ArraySpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"
