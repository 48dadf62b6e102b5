"""Shards: what each rank writes of a checkpoint, and how any part of all of them is read.

An array is cut into pieces of ``PIECE_BYTES``, each with a checksum of its own: a part of an array
can be read and checked without the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.arrays.shards import ShardedArray, block, key_of, make_up, overlap, volume
from runhooks.checkpoint import arrays, states
from runhooks.checkpoint.arrays import check_arrays, check_sum, naming, read_file
from runhooks.checkpoint.manifest import (
    VARIABLES,
    ArraySpec,
    Draft,
    FileDigest,
    Manifest,
    files_of,
    is_place,
    is_shape,
    is_whole,
    spec_from,
)
from runhooks.checkpoint.reading import read_into
from runhooks.checkpoint.states import EncodedStates
from runhooks.stores.interruption import interrupting
from runhooks.stores.path import AnyPath, StorePath

PIECE_BYTES = 4 << 20

#: The end of the key of a whole array that a rank has written because it differs from the chief's.
_OWN = "@rank"


class StoredShard(NamedTuple):
    """A block of an array in a file.

    Attributes:
        name: The name of the array.
        spec: The dtype and the shape of the whole array.
        start: The index of the first item of the block; None for an array that is this rank's own,
            and differs from the chief's.
        shape: The shape of the block.
        at: Where its bytes begin in the file.
        crc32c: The checksums of its pieces; None if the whole file has been compared with its own.
    """

    name: str
    spec: ArraySpec
    start: tuple[int, ...] | None
    shape: tuple[int, ...]
    at: int
    crc32c: tuple[int, ...] | None

    @property
    def key(self) -> str:
        """Its name in the file."""
        return self.name + _OWN if self.start is None else key_of(self.name, self.start)

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return math.prod(self.shape) * arrays.item_bytes(self.spec.dtype)

    def fitting(self) -> StoredShard:
        """Return it; ValueError if it is not a block of its array."""
        start = (0,) * len(self.shape) if self.start is None else self.start
        bounds = zip(start, self.shape, self.spec.shape, strict=False)
        if not len(start) == len(self.shape) == len(self.spec.shape) or any(
            at + size > whole for at, size, whole in bounds
        ):
            raise ValueError(f"{self.key!r} is not a block of {self.spec}")
        if self.crc32c is None or len(self.crc32c) != -(-self.nbytes // PIECE_BYTES):
            raise ValueError(f"{self.key!r} has other checksums")
        return self


class ShardIndex(NamedTuple):
    """What one rank has written. ``samples``: checksums of a few items of arrays that all hold."""

    shards: list[StoredShard]
    samples: Mapping[str, int]

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        listed = [{**it._asdict(), "spec": it.spec._asdict()} for it in self.shards]
        return json.dumps({"shards": listed, "samples": dict(self.samples)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ShardIndex:
        """Return the index in ``data``. Raises ValueError if it makes no sense."""
        try:
            content = json.loads(data)
            shards = [_shard(it) for it in content["shards"]]
            samples = content["samples"]
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"it makes no sense: {error}") from None
        if not isinstance(samples, dict) or not all(map(is_whole, samples.values())):
            raise ValueError("its samples make no sense")
        return cls(shards, samples)

    def in_file(self, size: int) -> ShardIndex:
        """Return it; ValueError unless its blocks fill the end of a file of ``size`` bytes."""
        end = None
        for shard in sorted(self.shards, key=lambda it: (it.at, it.nbytes)):
            if shard.at != (shard.at if end is None else end):
                raise ValueError("its blocks overlap or leave a gap in their file")
            end = shard.at + shard.nbytes
        if end is not None and end != size:
            raise ValueError(f"its blocks end at byte {end} of a file of {size}")
        return self


class IndexedFile:
    """Encodes blocks as a file; ``index`` says what is in it once its pieces were written.

    Args:
        shards: The blocks by key, with ``at`` and ``crc32c`` still to be found.
        values: Their values by key.
    """

    def __init__(
        self, shards: Mapping[str, StoredShard], values: Mapping[str, NDArray[Any]]
    ) -> None:
        self._shards = shards
        self._values = values
        self._found: list[StoredShard] = []

    def pieces(self) -> Iterator[bytes | NDArray[np.uint8]]:
        """Yield the bytes of the file, piece by piece."""
        encoded = arrays.encode(self._values)
        header = next(encoded)
        yield header
        at = len(header)
        for (key, _), data in zip(arrays.in_order_of_writing(self._values), encoded, strict=True):
            sums = []
            for begin in range(0, len(data), PIECE_BYTES):
                piece = data[begin : begin + PIECE_BYTES]
                sums.append(int(google_crc32c.value(piece)))
                yield piece
            self._found.append(self._shards[key]._replace(at=at, crc32c=tuple(sums)))
            at += len(data)

    def index(self, samples: Mapping[str, int]) -> ShardIndex:
        """Return what is in the file."""
        return ShardIndex(self._found, samples)


def _shard(content: Any) -> StoredShard:
    start, at, sums = content["start"], content["at"], content["crc32c"]
    shape = content["shape"]
    if not isinstance(content["name"], str) or not is_shape(shape) or not is_whole(at):
        raise ValueError("an entry makes no sense")
    are_sums = isinstance(sums, list) and all(map(is_whole, sums))
    if not (start is None or is_place(start)) or not are_sums:
        raise ValueError("an entry has a start or checksums that make no sense")
    return StoredShard(
        content["name"],
        spec_from(content["spec"]),
        None if start is None else tuple(start),
        tuple(shape),
        at,
        tuple(sums),
    ).fitting()


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
        for start, own in _blocks(name, array, of_chief):
            shard = StoredShard(name, spec, start, own.shape, 0, ())
            shards[shard.key], values[shard.key] = shard, own
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


_SPAN_BYTES = 512 << 20
_GAP_BYTES = 64 << 10  # that are rather read than asked around
_MOST_AT_ONCE = 16


class _Part(NamedTuple):
    """An array that is one block of one file."""

    file: str
    at: int
    name: str
    shard: StoredShard
    array: StoredArray

    @property
    def end(self) -> int:
        return self.at + self.shard.nbytes


def read_several(stored: Mapping[str, StoredArray]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield arrays by name, each whole, as they lie in their files.

    From a disk one after the other. From a store those that are side by side, as far as they have
    512 MB together, are read at once and share their memory.

    Raises as ``StoredArray.read`` does.
    """
    parts, rest = [], {}
    for name, array in stored.items():
        block = array.only_block()
        if block is None or not array.in_store:
            rest[name] = array
        else:
            parts.append(_Part(block[0], block[1].at, name, block[1], array))
    for span in _spans(sorted(parts, key=lambda part: (part.file, part.at))):
        yield from _read_span(span)
    yield from _read_apart(rest)


def _spans(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    span: list[_Part] = []
    for part in parts:
        if span and (
            part.file != span[0].file
            or part.at > span[-1].end + _GAP_BYTES
            or part.end > span[0].at + _SPAN_BYTES
        ):
            yield span
            span = []
        span.append(part)
    if span:
        yield span


def _read_span(span: list[_Part]) -> Iterator[tuple[str, NDArray[Any]]]:
    first, path = span[0], span[0].array.path
    data = np.empty(span[-1].end - first.at, np.uint8)
    with naming(path, first.file):
        read_into(path / first.file, first.at, data)
        for part in span:
            content = data[part.at - first.at : part.end - first.at]
            check_pieces(content, part.shard.crc32c or ())
            yield part.name, content.view(part.array.dtype).reshape(part.array.shape)


def _read_apart(stored: Mapping[str, StoredArray]) -> Iterator[tuple[str, NDArray[Any]]]:
    if not any(array.in_store for array in stored.values()):
        yield from ((name, np.asarray(array)) for name, array in stored.items())
        return
    with ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-restore") as threads, interrupting():
        yield from zip(stored, threads.map(np.asarray, stored.values()), strict=True)
