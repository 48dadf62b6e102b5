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

HEADER_BYTES = 12
#: What a record has besides its payload: the header, and the check of the payload.
FRAME_BYTES = HEADER_BYTES + 4

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")


def check_of(content: bytes) -> bytes:
    """Return the check of ``content``, 4 bytes."""
    return masked(crc32c(content)).to_bytes(4, "little")


def frame(payload: bytes) -> bytes:
    """Return ``payload`` as one record."""
    length = _LENGTH.pack(len(payload))
    return b"".join((length, check_of(length), payload, check_of(payload)))


def payload_length(data: bytes | bytearray, at: int = 0) -> int | None:
    """Return the length of the payload whose header is at byte ``at``; None if that is none."""
    if at + HEADER_BYTES > len(data):
        return None
    length, check = _HEADER.unpack_from(data, at)
    return length if masked(crc32c(_LENGTH.pack(length))) == check else None


def read_records(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the payloads of ``file`` from where it is, up to the end or to a last record cut off.

    A record that is cut off is one that is still being written, or was when its writer died. After
    each payload the file is at the end of its record, to be gone on from at another time.

    Raises DataLossError, naming ``path`` and the offset of the record, where a check fails.
    """
    size = os.fstat(file.fileno()).st_size
    offset = file.tell()
    while True:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return
        length = payload_length(header)
        if length is None:
            raise _damaged(path, offset, "length")
        end = offset + length + FRAME_BYTES
        if end > size:
            return
        payload = file.read(length)
        if check_of(payload) != file.read(4):
            raise _damaged(path, offset, "payload")
        yield payload
        offset = end


def _damaged(path: str, offset: int, part: str) -> DataLossError:
    return DataLossError(
        f"{path} is damaged: the {part} of the record at byte {offset} fails its check", path=path
    )
