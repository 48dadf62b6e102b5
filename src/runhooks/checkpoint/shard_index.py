"""``ShardIndex``: what is in the file of arrays that one rank has written, and where.

An array is cut into pieces of ``PIECE_BYTES``, each with a checksum of its own: a part of an array
can be read and checked without the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.shards import key_of
from runhooks.checkpoint import arrays
from runhooks.checkpoint.manifest import ArraySpec, is_place, is_shape, is_whole, spec_from

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
