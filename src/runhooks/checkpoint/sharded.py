"""``ShardedCheckpoint``: reads what several ranks have written, as one checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.dtypes import dtype_named
from runhooks.arrays.shards import block, overlap, volume
from runhooks.checkpoint import arrays, states
from runhooks.checkpoint.files import check_arrays, check_sum, naming, read_file
from runhooks.checkpoint.manifest import VARIABLES, ArraySpec, FileDigest, Manifest
from runhooks.checkpoint.reading import read_into
from runhooks.checkpoint.shard_index import PIECE_BYTES, ShardIndex, StoredShard
from runhooks.checkpoint.shard_writing import together
from runhooks.checkpoint.states import EncodedStates
from runhooks.stores.path import AnyPath, StorePath


class StoredArray:
    """An array of a sharded checkpoint, of which no more is read than is asked for.

    What is read is compared with its checksums. NumPy reads it whole.

    Args:
        path: The checkpoint.
        spec: The dtype and the shape of the array.
        shards: Its blocks, each with the name of its file.
    """

    def __init__(
        self, path: AnyPath, spec: ArraySpec, shards: Sequence[tuple[str, StoredShard]]
    ) -> None:
        self.path = path
        self._shards = shards
        #: Whether it is in a store, where many small reads at a time take as long as one.
        self.in_store = isinstance(path, StorePath)
        self.shape = spec.shape
        self.dtype = dtype_named(spec.dtype)

    def read(self, start: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
        """Return the block of ``shape`` that begins at ``start``.

        Raises:
            DataLossError: It is damaged, or cannot be read.
        """
        whole: NDArray[Any] | None = None
        for name, shard in self._shards:
            begin = shard.start or (0,) * len(shard.shape)
            shared = overlap(begin, shard.shape, start, shape)
            if shared is None:
                continue
            inside = tuple(at - first for at, first in zip(shared[0], begin, strict=True))
            values = _read_block(self.path, name, shard, self.dtype, inside, shared[1])
            if shared == (tuple(start), tuple(shape)):
                return values
            if whole is None:
                whole = np.empty(shape, self.dtype)
            place = tuple(at - first for at, first in zip(shared[0], start, strict=True))
            whole[block(place, shared[1])] = values
        # The shards were found to make up the whole: there is none of an empty block alone.
        return np.empty(shape, self.dtype) if whole is None else whole

    def only_block(self) -> tuple[str, StoredShard] | None:
        """Return the block that is all of it, with the name of its file; None if there is none."""
        if len(self._shards) == 1 and self._shards[0][1].shape == self.shape:
            return self._shards[0]
        return None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self.read((0,) * len(self.shape), self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)


def stored_arrays(path: AnyPath, manifest: Manifest) -> dict[str, StoredArray]:
    """Return the arrays of a checkpoint that one process has saved, after comparing its checksum.

    The file is read twice, but not kept in memory. Raises as ``read_checkpoint`` does.
    """
    expected = manifest.files[VARIABLES]
    entries = check_arrays(path, VARIABLES, expected, manifest.arrays)
    header = expected.size - sum(it.nbytes for it in entries.values())
    found = {}
    for name, entry in entries.items():
        spec = ArraySpec(entry.dtype, entry.shape)
        start = (0,) * len(entry.shape)
        shard = StoredShard(name, spec, start, entry.shape, header + entry.start, None)
        found[name] = StoredArray(path, spec, [(VARIABLES, shard)])
    return found


class _Rank(NamedTuple):
    """What one rank has written."""

    listed: ShardIndex
    own: dict[str, StoredShard]


class ShardedCheckpoint:
    """The checkpoint ``path``, of which ``manifest`` says that several ranks have written it.

    Raises:
        DataLossError: An index is damaged, or shards are missing.
    """

    def __init__(self, path: AnyPath, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest
        self._ranks = {rank: self._rank(rank) for rank in range(manifest.ranks or 0)}
        with naming(path, "shards"):
            found = together({rank: it.listed for rank, it in self._ranks.items()})
            if found != manifest.arrays:
                raise ValueError("the shards are not those of the arrays in the manifest")

    def arrays(self, rank: int | None = None) -> dict[str, StoredArray]:
        """Return the arrays as ``rank`` had them; None: as the chief had those that differed."""
        shards: dict[str, list[tuple[str, StoredShard]]] = {}
        for of, it in self._ranks.items():
            for shard in it.listed.shards:
                if shard.start is not None:
                    shards.setdefault(shard.name, []).append(
                        (self._manifest.files_of(of).variables, shard)
                    )
        found = {
            name: StoredArray(self._path, spec, shards.get(name, []))
            for name, spec in self._manifest.arrays.items()
        }
        if rank is None:
            return found
        own = self._ranks[rank].own.items()
        file = self._manifest.files_of(rank).variables
        return found | {name: StoredArray(self._path, it.spec, [(file, it)]) for name, it in own}

    def differing(self) -> set[str]:
        """Return the names of arrays that some ranks had with other values than the chief."""
        return {name for it in self._ranks.values() for name in it.own}

    def states(self, rank: int) -> dict[str, Any]:
        """Return the states of ``rank``. Raises as ``read_checkpoint`` does."""
        return read_states(self._path, *self._state_files(rank), self._manifest.files)

    def check(self) -> list[str]:
        """Check every file without keeping arrays in memory; return the names of the states.

        Raises as ``read_checkpoint`` does.
        """
        found: set[str] = set()
        for rank, it in self._ranks.items():
            name = self._manifest.files_of(rank).variables
            expected = self._manifest.files[name]
            blocks = {block.key: block for block in it.listed.shards}
            specs = {key: ArraySpec(block.spec.dtype, block.shape) for key, block in blocks.items()}
            entries = check_arrays(self._path, name, expected, specs)
            header = expected.size - sum(entry.nbytes for entry in entries.values())
            with naming(self._path, name):
                if any(blocks[key].at != header + entry.start for key, entry in entries.items()):
                    raise ValueError("its blocks are not where its index says")
            found.update(check_states(self._path, *self._state_files(rank), self._manifest.files))
        return sorted(found)

    def _state_files(self, rank: int) -> tuple[str, str]:
        names = self._manifest.files_of(rank)
        return names.states, names.state_arrays

    def _rank(self, rank: int) -> _Rank:
        names, files = self._manifest.files_of(rank), self._manifest.files
        data = read_file(self._path, names.shards, files[names.shards])
        with naming(self._path, names.shards):
            index = ShardIndex.from_bytes(data).in_file(files[names.variables].size)
        return _Rank(index, {it.name: it for it in index.shards if it.start is None})


def read_states(
    path: AnyPath, text_name: str, arrays_name: str, files: Mapping[str, FileDigest]
) -> dict[str, Any]:
    """Return the states in the two files of a checkpoint, of which the second may be missing.

    Raises as ``read_file`` does.
    """
    kept = {}
    if arrays_name in files:
        data = read_file(path, arrays_name, files[arrays_name])
        with naming(path, arrays_name):
            kept = arrays.decode(data)
    text = read_file(path, text_name, files[text_name])
    with naming(path, text_name):
        return states.decode(EncodedStates(text, kept))


def check_states(
    path: AnyPath, text_name: str, arrays_name: str, files: Mapping[str, FileDigest]
) -> list[str]:
    """Return the names of the states, building none. Raises as ``read_file`` does."""
    entries: Iterable[str] = ()
    if arrays_name in files:
        entries = check_arrays(path, arrays_name, files[arrays_name])
    text = read_file(path, text_name, files[text_name])
    with naming(path, text_name):
        return states.names(text, list(entries))


def _read_block(
    path: AnyPath,
    name: str,
    shard: StoredShard,
    dtype: np.dtype[Any],
    start: tuple[int, ...],
    shape: tuple[int, ...],
) -> NDArray[Any]:
    """The block of a shard at ``start``, counted from the start of the shard; it is not empty."""
    if not shape:
        return _read_bytes(path, name, shard, 0, shard.nbytes).view(dtype).reshape(())
    row_bytes = volume(shard.shape[1:]) * dtype.itemsize
    first, last = start[0] * row_bytes, (start[0] + shape[0]) * row_bytes
    data = _read_bytes(path, name, shard, first, last)
    rows = data.view(dtype).reshape(shape[0], *shard.shape[1:])
    return rows[block((0, *start[1:]), shape)]


def _read_bytes(
    path: AnyPath, name: str, shard: StoredShard, first: int, last: int
) -> NDArray[np.uint8]:
    sums = shard.crc32c or ()
    begin = first // PIECE_BYTES * PIECE_BYTES
    end = min(-(-last // PIECE_BYTES) * PIECE_BYTES, shard.nbytes)
    data = np.empty(end - begin, np.uint8)
    with naming(path, name):
        read_into(path / name, shard.at + begin, data)
        check_pieces(data, sums[begin // PIECE_BYTES :])
    return data[first - begin : last - begin]


def check_pieces(data: NDArray[np.uint8], sums: Sequence[int]) -> None:
    """Compare the pieces of ``data`` with their checksums, of which there may be none or more.

    Raises:
        ValueError: One differs.
    """
    for at, expected in zip(range(0, len(data), PIECE_BYTES), sums, strict=False):
        check_sum(int(google_crc32c.value(data[at : at + PIECE_BYTES])), expected)
