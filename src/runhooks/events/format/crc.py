"""CRC-32C, the checksum of records, of bytes and of the rows of an array.

A CRC is affine over GF(2): the CRC of a row is the CRC of the row with some of its bytes set to
zero, xor a contribution of each of these bytes, which depends only on the byte and its distance
from the end. So rows that mostly agree cost one table look-up for each byte in which they differ.
Format: RFC 3720, appendix B.4; the mask is that of TFRecord files.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

_MASK = 0xA282EAD8

_Crc = TypeVar("_Crc", int, NDArray[np.uint32])


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of ``data``."""
    crc: int = google_crc32c.value(data)
    return crc


def masked(crc: _Crc) -> _Crc:
    """Return ``crc``, one or an array of uint32, as records store it.

    The mask keeps a payload that itself contains CRCs from containing its own.
    """
    rotated: Any = crc >> 15 | crc << 17
    result: _Crc = (rotated + _MASK) & 0xFFFFFFFF
    return result


@functools.cache
def contributions(distance: int) -> NDArray[np.uint32]:
    """Return the contribution of each byte to a CRC if ``distance`` bytes follow it: ``[256]``."""
    zeros = bytes(distance)
    nothing = crc32c(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in (1 << place for place in range(8)):
        table[bit : 2 * bit] = table[:bit] ^ np.uint32(crc32c(bytes((bit,)) + zeros) ^ nothing)
    table.flags.writeable = False
    return table
