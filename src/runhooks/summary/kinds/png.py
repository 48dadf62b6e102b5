"""A PNG encoder for whole images of eight bits a channel. Format: w3.org/TR/png."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from runhooks.summary.kinds.png_filter import filtered

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


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
    twos = rows[1:] == rows[:-1]
    threes = twos[1:] & twos[:-1]
    fives = threes[2:] & threes[:-2]
    nines = fives[4:] & fives[:-4]
    return bool(np.count_nonzero(nines) > 0.4 * np.count_nonzero(fives))


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)))
