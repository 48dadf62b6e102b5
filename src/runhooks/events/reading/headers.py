"""Finding records: all headers of a block at once.

A header is the length of the payload, uint64, and the masked CRC-32C of the length. The upper four
bytes of the length are zero for anything below 4 GiB, and a CRC is right by chance once in four
billion times. So headers are found by comparing whole arrays, whatever the lengths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.crc import contributions, crc32c, masked
from runhooks.events.format.record import FRAME_BYTES, HEADER_BYTES, payload_length

_LENGTH_BYTES = 8
_STRIDE = 1 << 18  # bytes searched together: the arrays stay in the cache
_FEW = 32
_WORTH = 3  # times as much as a few records take: more than that is searched at once
_SMALL = 512  # bytes: larger records are walked one by one

Found = tuple[NDArray[np.int64], NDArray[np.int64]]


def find_headers(data: bytes | bytearray, begin: int, end: int) -> Found:
    """Return where headers start in ``data[begin:end]``, sorted, and their lengths: int64 ``[n]``.

    Headers inside a payload are found too; lengths of 4 GiB and more are not.
    """
    zero = _zeros(data, begin, end)
    return _checked(data, begin, np.flatnonzero(_fours(zero)))


def walk(data: bytes | bytearray, size: int) -> Found:
    """Return where the complete records of ``data[:size]`` start, from 0 on, and their lengths.

    There is no gap between them; the walk ends where no complete record begins.
    """
    pieces: list[Found] = []
    at = 0
    while True:
        begin = at
        few = _walk_few(data, at, size)
        at = _end(few, at)
        pieces.append(few)
        if len(few[0]) < _FEW:
            break
        if at - begin <= _FEW * _SMALL and size - at > _WORTH * (at - begin):
            while at < size and len((many := _walk_stride(data, at, size))[0]) > _FEW:
                at = _end(many, at)
                pieces.append(many)
    starts, lengths = zip(*pieces, strict=True)
    return np.concatenate(starts), np.concatenate(lengths)


def _zeros(data: bytes | bytearray, begin: int, end: int) -> NDArray[np.bool_]:
    """Return which bytes from ``begin + 4`` on are zero, for headers that start before ``end``."""
    count = min(end, len(data) - HEADER_BYTES + 1) - begin
    if count <= 0:
        return np.zeros(5, np.bool_)  # no header
    zero: NDArray[np.bool_] = np.frombuffer(data, np.uint8, count + 4, begin + 4) == 0
    return zero


def _fours(zero: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where four zeros begin, the upper half of a length perhaps."""
    twos = zero[:-1] & zero[1:]
    fours: NDArray[np.bool_] = twos[:-3] & twos[2:-1]
    return fours


def _checked(data: bytes | bytearray, begin: int, places: NDArray[np.int64]) -> Found:
    starts = places + begin
    headers = np.ndarray((len(data) - HEADER_BYTES + 1,), f"V{HEADER_BYTES}", data, 0, (1,))[starts]
    words = headers.view("<u4").reshape(-1, 3)
    right = _checks(words[:, 0]) == words[:, 2]
    return starts[right], words[right, 0].astype(np.int64)


def _checks(lengths: NDArray[np.uint32]) -> NDArray[np.uint32]:
    crcs = np.full(len(lengths), crc32c(bytes(_LENGTH_BYTES)), np.uint32)
    for byte in range(4):
        if byte < 2 or (lengths >> 8 * byte).any():
            digits = (lengths >> 8 * byte).astype(np.uint8)
            crcs ^= contributions(_LENGTH_BYTES - 1 - byte).take(digits, mode="wrap")
    return masked(crcs)


def _end(found: Found, at: int) -> int:
    starts, lengths = found
    return int(starts[-1] + lengths[-1]) + FRAME_BYTES if len(starts) else at


def _walk_few(data: bytes | bytearray, at: int, size: int) -> Found:
    starts, lengths = [], []
    for _ in range(_FEW):
        length = payload_length(data, at)
        if length is None or at + length + FRAME_BYTES > size:
            break
        starts.append(at)
        lengths.append(length)
        at += length + FRAME_BYTES
    return np.array(starts, np.int64), np.array(lengths, np.int64)


def _walk_stride(data: bytes | bytearray, at: int, size: int) -> Found:
    zero = _zeros(data, at, at + _STRIDE)
    likely = _fours(zero)
    # The zeros of a length end where its CRC begins, except for the few whose CRC begins with a
    # zero: of these we take the short ones, and leave the others to the walk one by one.
    likely[3:] &= ~zero[7:] | likely[:-3]
    starts, lengths = _checked(data, at, np.flatnonzero(likely))
    ends = starts + lengths + FRAME_BYTES
    whole = ends <= size
    starts, lengths, ends = starts[whole], lengths[whole], ends[whole]
    chosen = []
    first = 0
    while first < len(starts) and starts[first] == at:
        # Up to where the next header is not at the end of the record, but inside its payload.
        breaks = starts[first + 1 :] != ends[first:-1]
        last = first + int(breaks.argmax()) if breaks.any() else len(starts) - 1
        chosen.append(np.arange(first, last + 1))
        at = int(ends[last])
        first = int(np.searchsorted(starts, at))
    index = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
    return starts[index], lengths[index]
