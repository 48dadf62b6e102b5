"""Records: how an event file, or any TFRecord file, frames its payloads.

    length of payload   uint64, little-endian
    check of length     uint32, masked CRC-32C
    payload
    check of payload    uint32, masked CRC-32C

Format: tensorflow.org/tutorials/load_data/tfrecord.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from runhooks.errors import DataLossError
from runhooks.events.crc import crc32c, masked

_HEADER = struct.Struct("<QI")
_CHECK = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


def _check(content: bytes) -> int:
    return masked(crc32c(content))


def frame(payload: bytes) -> bytes:
    """Return ``payload`` as one record."""
    length = _LENGTH.pack(len(payload))
    return b"".join((length, _CHECK.pack(_check(length)), payload, _CHECK.pack(_check(payload))))


def read_records(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the payloads of ``file`` from where it is, up to the end or to a last record cut off.

    A record that is cut off is one that is still being written, or was when its writer died. After
    each payload the file is at the end of its record, to be gone on from at another time.

    Raises DataLossError, naming ``path`` and the offset of the record, where a check fails.
    """
    size = os.fstat(file.fileno()).st_size
    offset = file.tell()
    while True:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        length, length_check = _HEADER.unpack(header)
        if _check(header[: _LENGTH.size]) != length_check:
            raise _damaged(path, offset, "length")
        if offset + _HEADER.size + length + _CHECK.size > size:
            return
        payload = file.read(length)
        if _check(payload) != _CHECK.unpack(file.read(_CHECK.size))[0]:
            raise _damaged(path, offset, "payload")
        yield payload
        offset += _HEADER.size + length + _CHECK.size


def _damaged(path: str, offset: int, part: str) -> DataLossError:
    return DataLossError(
        f"{path} is damaged: the {part} of the record at byte {offset} fails its check", path=path
    )
