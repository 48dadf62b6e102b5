"""Reads many arrays of a store in few requests: those that lie side by side, in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.checkpoint.files import naming
from runhooks.checkpoint.reading import read_into
from runhooks.checkpoint.shard_index import StoredShard
from runhooks.checkpoint.sharded import StoredArray, check_pieces
from runhooks.stores.interruption import interrupting

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
