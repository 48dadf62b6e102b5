"""``RecordReader``: the records of one file, block by block, past whatever is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from runhooks.errors import DataLossError
from runhooks.events.crc import masked
from runhooks.events.reading.damage import Damage
from runhooks.events.reading.headers import Found, find_headers, walk
from runhooks.events.reading.rows import SLACK
from runhooks.events.record import FRAME_BYTES, HEADER_BYTES, payload_length

BAD_PAYLOAD = "the payload of the record fails its check"

_SMALLEST, _LARGEST = 1 << 16, 1 << 20  # bytes of a block
_PIECE = 1 << 20  # bytes of a payload that are checked together
_HEAD = 64  # bytes at the beginning by which a file is known again: its first wall time is in them


class Block(NamedTuple):
    """Some whole records: ``found`` in ``data``, which is at byte ``offset`` of the file.

    The payloads are not verified, but for the last one's. Of all others it is known that a record
    follows, so that at least their lengths are right.
    """

    data: bytearray
    offset: int
    found: Found

    @property
    def last(self) -> int | None:
        """Where in the file the last record begins; None if there is none."""
        starts, _ = self.found
        return self.offset + int(starts[-1]) if len(starts) else None

    @property
    def end(self) -> int:
        """Where in the file the last record ends."""
        starts, lengths = self.found
        return self.offset + int(starts[-1] + lengths[-1]) + FRAME_BYTES

    def without_last(self) -> Block:
        """Return all but the last record."""
        starts, lengths = self.found
        return self._replace(found=(starts[:-1], lengths[:-1]))


class RecordReader:
    """Reads the records of the file ``path``, and what is added to it later.

    ``offset``: where the next record is looked for. ``records``: how many sound ones were read.
    ``damages``: what was skipped. ``partial``: bytes at the end that are the beginning of a record.
    """

    def __init__(self, path: Path, strict: bool = False) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.records = 0
        self.partial = 0
        self._head = b""
        self._strict = strict
        self._passed: list[Damage] = []
        self._tail: Damage | None = None

    @property
    def damages(self) -> list[Damage]:
        """What was skipped, in the order of the file."""
        return sorted(self._passed) + ([self._tail] if self._tail else [])

    def is_replaced(self) -> bool:
        """Return whether another file is there now, or a shorter one, or none."""
        # An inode tells less: file systems use it again, and some make it up at each look.
        try:
            with FileIO(self.path) as file:
                shorter = os.fstat(file.fileno()).st_size < self.size
                return shorter or file.read(len(self._head)) != self._head
        except FileNotFoundError:
            return True

    def blocks(self) -> Iterator[Block]:
        """Yield what is new, up to the present end of the file.

        Raises OSError if the file cannot be read; DataLossError at a damage if strict.
        """
        with FileIO(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= self.size:
                return  # nothing is new: what could not be read cannot be read now
            self._tail, self.partial = None, 0
            reach = _SMALLEST
            while reach and self.offset < size:
                reach = min(reach, size - self.offset)
                block = self._load(file, reach)
                begin = block.last
                if begin is None:
                    reach = self._pass_obstacle(file, size, reach)
                elif _is_sound(file, begin, size):
                    self.offset = block.end
                    reach = max(min(2 * reach, _LARGEST), _SMALLEST)
                    yield self._counted(block)
                else:
                    self.offset = begin
                    yield self._counted(block.without_last())
                    reach = self._pass_bad_payload(file, block.end, size)
            self.size = size

    def bad_payload(self, offset: int, length: int) -> None:
        """Note that a record of a block fails its check. Raises DataLossError if strict."""
        self.records -= 1
        self._pass(offset, length, BAD_PAYLOAD)

    def _pass(self, offset: int, skipped: int, reason: str) -> None:
        self._passed.append(self._damage(offset, skipped, reason))

    def _load(self, file: FileIO, length: int) -> Block:
        data = bytearray(length + SLACK)
        file.seek(self.offset)
        view, got = memoryview(data)[:length], 0
        while got < length and (count := file.readinto(view[got:])):
            got += count
        return Block(data, self.offset, walk(data, got))

    def _counted(self, block: Block) -> Block:
        self.records += len(block.found[0])
        if block.offset == 0:
            self._head = bytes(block.data[: min(_HEAD, self.offset)])
        return block

    def _pass_bad_payload(self, file: FileIO, end: int, size: int) -> int:
        """Go on behind the record at the offset; return how many bytes to read next, 0 if none."""
        begin = self.offset
        if size - end < HEADER_BYTES:
            # Not passed: what follows may say that its length is wrong.
            self._tail = self._damage(begin, end - begin, BAD_PAYLOAD)
            self.partial = size - end
            return 0
        if payload_length(_read_at(file, end, HEADER_BYTES)) is None:
            # Its length is wrong, or it was cut off and the next ones are inside of it.
            return self._pass_to_next_sound(file, size, BAD_PAYLOAD)
        self.offset = end
        self._pass(begin, end - begin, BAD_PAYLOAD)
        return _SMALLEST

    def _pass_obstacle(self, file: FileIO, size: int, reach: int) -> int:
        """Go on behind what is no record; return how many bytes to read next, 0 if none."""
        rest = size - self.offset
        length = payload_length(_read_at(file, self.offset, HEADER_BYTES))
        if length is not None and reach < length + FRAME_BYTES <= rest:
            return length + FRAME_BYTES  # more than was read
        if length is not None or rest < HEADER_BYTES:
            self.partial = rest
            return 0
        return self._pass_to_next_sound(file, size, "no record begins here")

    def _pass_to_next_sound(self, file: FileIO, size: int, reason: str) -> int:
        begin = self.offset
        found = _next_sound(file, begin + 1, size)
        if found is None:
            # Not passed: where it ends may turn out when the file has grown.
            self._tail = self._damage(begin, size - begin, reason)
            return 0
        self.offset = found
        self._pass(begin, found - begin, reason)
        return _SMALLEST

    def _damage(self, offset: int, skipped: int, reason: str) -> Damage:
        if self._strict:
            raise DataLossError(
                f"{self.path} is damaged at byte {offset}: {reason}", path=str(self.path)
            )
        return Damage(self.path, offset, skipped, reason)


def _next_sound(file: FileIO, offset: int, size: int) -> int | None:
    """Return where from ``offset`` on the first record is of which both checks hold."""
    reach = 1 << 12
    while offset < size:
        data = _read_at(file, offset, min(reach + HEADER_BYTES - 1, size - offset))
        starts, lengths = find_headers(data, 0, len(data))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            whole = offset + start + length + FRAME_BYTES <= size
            if whole and _is_sound(file, offset + start, size):
                return int(offset + start)
        offset += reach
        reach = min(2 * reach, _PIECE)
    return None


def _is_sound(file: FileIO, offset: int, size: int) -> bool:
    length = payload_length(_read_at(file, offset, HEADER_BYTES))
    if length is None or offset + length + FRAME_BYTES > size:
        return False
    crc, at, end = 0, offset + HEADER_BYTES, offset + HEADER_BYTES + length
    while at < end:
        piece = _read_at(file, at, min(_PIECE, end - at))
        if not piece:
            return False
        crc = google_crc32c.extend(crc, piece)
        at += len(piece)
    return masked(crc).to_bytes(4, "little") == _read_at(file, end, 4)


def _read_at(file: FileIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
