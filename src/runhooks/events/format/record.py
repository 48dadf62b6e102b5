"""Records: the framing of all TFRecord files, with CRC-32C.

    length of payload   uint64, little-endian
    CRC of the length   uint32, masked CRC-32C
    payload
    CRC of the payload  uint32, masked CRC-32C

Formats: tensorflow.org/tutorials/load_data/tfrecord; RFC 3720, appendix B.4.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from io import RawIOBase
from typing import Any, BinaryIO, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.errors import DataLossError

_MASK = 0xA282EAD8

_Crc = TypeVar("_Crc", int, NDArray[np.uint32])


def crc32c(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return crc


def masked(crc: _Crc) -> _Crc:
    rotated: Any = crc >> 15 | crc << 17
    result: _Crc = (rotated + _MASK) & 0xFFFFFFFF
    return result


@functools.cache
def contributions(distance: int) -> NDArray[np.uint32]:
    """Return what each byte adds, by xor, to a CRC if ``distance`` bytes follow it: ``[256]``."""
    zeros = bytes(distance)
    nothing = crc32c(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in (1 << place for place in range(8)):
        table[bit : 2 * bit] = table[:bit] ^ np.uint32(crc32c(bytes((bit,)) + zeros) ^ nothing)
    table.flags.writeable = False
    return table


HEADER_BYTES = 12
FRAME_BYTES = HEADER_BYTES + 4

#: Payloads are smaller: Protocol Buffers allows no message of 2 GiB.
LIMIT_BYTES = 1 << 31

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")


def check_of(content: bytes) -> bytes:
    return masked(crc32c(content)).to_bytes(4, "little")


def frame(payload: bytes) -> bytes:
    """Return ``payload`` as one record. Raises ValueError if it has 2 GiB or more."""
    if len(payload) >= LIMIT_BYTES:
        raise ValueError(f"an event must be smaller than 2 GiB, got {len(payload)} bytes")
    length = _LENGTH.pack(len(payload))
    return b"".join((length, check_of(length), payload, check_of(payload)))


def payload_length(data: bytes | bytearray | memoryview, at: int = 0) -> int | None:
    """Return the length in the header at byte ``at``, or None."""
    if at + HEADER_BYTES > len(data):
        return None
    length, check = _HEADER.unpack_from(data, at)
    return length if masked(crc32c(_LENGTH.pack(length))) == check else None


def complete_records(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return how many complete records ``data`` begins with, and their bytes."""
    count = end = 0
    while (length := payload_length(data, end)) is not None:
        if end + length + FRAME_BYTES > len(data):
            break
        count, end = count + 1, end + length + FRAME_BYTES
    return count, end


def read_records(file: BinaryIO | RawIOBase, path: str) -> Iterator[bytes]:
    """Yield the payloads of ``file``, open and binary, from its position on.

    A truncated record at the end is left out. After each payload, and at the end, the file is
    positioned after the last whole record, so reading can continue there.

    Raises DataLossError, which names ``path`` and the offset, if a CRC or a length is wrong.
    """
    offset = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(offset)
    while True:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            file.seek(offset)
            return
        length = payload_length(header)
        if length is None or length >= LIMIT_BYTES:
            raise _damaged(path, offset, "length")
        end = offset + length + FRAME_BYTES
        if end > size:
            file.seek(offset)
            return
        payload = file.read(length)
        if check_of(payload) != file.read(4):
            raise _damaged(path, offset, "payload")
        yield payload
        offset = end


def _damaged(path: str, offset: int, part: str) -> DataLossError:
    return DataLossError(
        f"{path} is damaged: the {part} of the record at byte {offset} is wrong", path=path
    )
