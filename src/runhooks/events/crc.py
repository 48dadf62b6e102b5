"""CRC-32C, the check of records: of bytes, and what each byte of many rows contributes to theirs.

A CRC is affine over GF(2): that of a row is that of the row with some of its bytes set to zero,
xor what each of these bytes contributes, which depends on its value and its distance from the end
alone. So rows that mostly agree cost a table look-up for each byte in which they differ. Format:
RFC 3720, appendix B.4; the mask is that of TFRecord files.
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
    """Return ``crc``, one or an array of uint32, as records hold it.

    It is masked so that a payload which itself holds CRCs does not meet its own.
    """
    rotated: Any = crc >> 15 | crc << 17
    result: _Crc = (rotated + _MASK) & 0xFFFFFFFF
    return result


@functools.cache
def contributions(distance: int) -> NDArray[np.uint32]:
    """Return what each byte contributes to a CRC if ``distance`` bytes follow it: ``[256]``."""
    zeros = bytes(distance)
    nothing = crc32c(b"\0" + zeros)
    table = np.array([crc32c(bytes((byte,)) + zeros) ^ nothing for byte in range(256)], np.uint32)
    table.flags.writeable = False
    return table
