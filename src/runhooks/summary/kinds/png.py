"""A PNG encoder for whole images of eight bits a channel. Format: w3.org/TR/png."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_BLOCK = 1 << 16  # bytes at a time, so that what is made on the way takes no fresh memory
_LONGEST = 8  # equal neighbours in a run of nine bytes


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return ``image``, uint8 ``[height, width, channels]`` with 1 to 4 channels, as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = filtered(image).ravel()
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", _compressed(rows)),
            _chunk(b"IEND", b""),
        )
    )


def _compressed(rows: NDArray[np.uint8]) -> bytes:
    # In a photograph what the filter leaves hardly ever repeats: coding frequent bytes by few bits
    # gets nearly all there is to get, in a fraction of the time, where need be with runs. Where
    # that gets much, the image is a drawing; then a real search is quick and gets more.
    strategy = zlib.Z_RLE if _has_long_runs(rows) else zlib.Z_HUFFMAN_ONLY
    deflate = zlib.compressobj(strategy=strategy)
    data = deflate.compress(rows.data) + deflate.flush()
    if len(data) < len(rows) // 4:
        data = min(data, zlib.compress(rows.data, level=9), key=len)
    return data


def _has_long_runs(rows: NDArray[np.uint8]) -> bool:
    """Whether a run of five equal bytes is likely to go on for another four."""
    of_five = of_nine = 0
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK + _LONGEST]
        twos = block[1:] == block[:-1]
        threes = twos[1:] & twos[:-1]
        fives = threes[2:] & threes[:-2]
        nines = fives[4:] & fives[:-4]
        of_five += int(np.count_nonzero(fives[:_BLOCK]))
        of_nine += int(np.count_nonzero(nines))
    return of_nine > 0.4 * of_five


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)))


_Bytes = NDArray[np.uint8]


def filtered(image: _Bytes) -> _Bytes:
    """Return the rows of ``image``, uint8 ``[height, width, channels]``, ready to be compressed.

    Each begins with the number of its filter: the one that leaves the least.
    """
    height, width, channels = image.shape
    length = width * channels
    # A row with a pixel of zeros before it is all that the neighbours at the border need.
    stride = channels + length
    padded = np.zeros(channels + (height + 1) * stride, np.uint8)
    padded[channels + stride :].reshape(height, stride)[:, channels:] = image.reshape(height, -1)
    rows = np.empty((height, 1 + length), np.uint8)
    step = max(_BLOCK // stride, 1)
    for top in range(0, height, step):
        count = min(step, height - top)
        block = padded[top * stride : channels + (top + count + 1) * stride]
        left = _left_by_each(block, stride, channels).reshape(4, count, stride)
        best = _sizes(left).argmin(axis=0)
        rows[top : top + count, 0] = best + 1
        rows[top : top + count, 1:] = left[best, np.arange(count), channels:]
    return rows


def _left_by_each(block: _Bytes, stride: int, channels: int) -> _Bytes:
    """Return what the filters 1 (sub), 2 (up), 3 (average) and 4 (Paeth) leave of ``block``.

    Its first row and the pixel before that are only the neighbours of the others.
    """
    here, before = block[channels + stride :], block[stride:-channels]
    above, corner = block[channels:-stride], block[: -stride - channels]
    left = np.empty((4, here.size), np.uint8)
    np.subtract(here, before, out=left[0])
    np.subtract(here, above, out=left[1])
    np.subtract(here, (before & above) + ((before ^ above) >> 1), out=left[2])
    np.subtract(here, _paeth(before, above, corner), out=left[3])
    return left


def _sizes(left: _Bytes) -> NDArray[np.uint32]:
    """Return how far from zero the bytes are, as signed ones, in sum over each row."""
    sizes: NDArray[np.uint32] = np.minimum(left, np.negative(left)).sum(axis=2, dtype=np.uint32)
    return sizes


def _paeth(before: _Bytes, above: _Bytes, corner: _Bytes) -> _Bytes:
    """Return whichever of the three is nearest to ``before + above - corner``.

    Where the corner is not between the other two, that is the one farther from it. Where it is,
    the nearer one if it is less than half as far from it as the other, else the corner itself.
    """
    low, high = np.minimum(before, above), np.maximum(before, above)
    from_above = np.maximum(above, corner) - np.minimum(above, corner)
    from_before = np.maximum(before, corner) - np.minimum(before, corner)
    near, far = np.minimum(from_above, from_before), np.maximum(from_above, from_before)
    nearer = _where(from_above <= from_before, before, above)
    between = _where(near > far - near, corner, nearer)
    return _where(corner >= high, low, _where(corner <= low, high, between))


def _where(condition: NDArray[np.bool_], yes: _Bytes, no: _Bytes) -> _Bytes:
    """Return ``np.where(condition, yes, no)``, several times faster."""
    mask = condition.view(np.uint8)
    np.negative(mask, out=mask)
    chosen: _Bytes = no ^ ((yes ^ no) & mask)
    return chosen
