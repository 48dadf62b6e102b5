"""The records of one file, block by block, without what is damaged."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from io import BufferedReader, FileIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.record import (
    FRAME_BYTES,
    HEADER_BYTES,
    LIMIT_BYTES,
    check_of,
    contributions,
    crc32c,
    masked,
    payload_length,
)
from runhooks.events.reading.results import Damage
from runhooks.stores.path import AnyPath, StorePath

_File: TypeAlias = FileIO | BufferedReader

_BINARY = getattr(os, "O_BINARY", 0)  # of Windows


def read_places(path: AnyPath, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return what is at ``places``, sorted, each where it begins and ends."""
    if isinstance(path, StorePath):
        return path.read_ranges(places)
    with _opened(path) as file:
        return [_read_at(file, begin, end - begin) for begin, end in places]


def _version_of(path: AnyPath) -> tuple[int, float] | None:
    """Return what changes when an object is written again; None if only its content tells."""
    return path.stat() if isinstance(path, StorePath) else None


def _size_of(file: _File) -> int:
    return file.seek(0, os.SEEK_END)


def _opened(path: Path) -> FileIO:
    # A FIFO would block until somebody writes.
    file = FileIO(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


_LENGTH_BYTES = 8
_STRIDE = 1 << 18  # bytes: the arrays stay in the cache
_FEW = 32
_WORTH = 3  # times what a few records take is searched at once
_SMALL = 512  # bytes: larger records are walked one by one

_Found: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def _walk(data: bytearray, size: int) -> _Found:
    """Return the records of ``data[:size]`` up to what is none."""
    pieces: list[_Found] = []
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
    """Return which bytes from ``begin + 4`` on are zero, for headers before ``end``."""
    count = min(end, len(data) - HEADER_BYTES + 1) - begin
    if count <= 0:
        return np.zeros(5, np.bool_)
    zero: NDArray[np.bool_] = np.frombuffer(data, np.uint8, count + 4, begin + 4) == 0
    return zero


def _fours(zero: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where four zeros begin, the upper half of a length perhaps."""
    twos = zero[:-1] & zero[1:]
    fours: NDArray[np.bool_] = twos[:-3] & twos[2:-1]
    return fours


def _checked(data: bytes | bytearray, begin: int, places: NDArray[np.int64]) -> _Found:
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


def _end(found: _Found, at: int) -> int:
    starts, lengths = found
    return int(starts[-1] + lengths[-1]) + FRAME_BYTES if len(starts) else at


def _walk_few(data: bytes | bytearray, at: int, size: int) -> _Found:
    starts, lengths = [], []
    for _ in range(_FEW):
        length = payload_length(data, at)
        if length is None or at + length + FRAME_BYTES > size:
            break
        starts.append(at)
        lengths.append(length)
        at += length + FRAME_BYTES
    return np.array(starts, np.int64), np.array(lengths, np.int64)


def _walk_stride(data: bytes | bytearray, at: int, size: int) -> _Found:
    zero = _zeros(data, at, at + _STRIDE)
    likely = _fours(zero)
    # The zeros of a length end where its CRC begins. Of the few whose CRC begins with a zero, the
    # short ones are taken here, the others one by one.
    likely[3:] &= ~zero[7:] | likely[:-3]
    starts, lengths = _checked(data, at, np.flatnonzero(likely))
    ends = starts + lengths + FRAME_BYTES
    whole = ends <= size
    starts, lengths, ends = starts[whole], lengths[whole], ends[whole]
    chosen = []
    first = 0
    while first < len(starts) and starts[first] == at:
        # Up to where the next header is inside the payload.
        breaks = starts[first + 1 :] != ends[first:-1]
        last = first + int(breaks.argmax()) if breaks.any() else len(starts) - 1
        chosen.append(np.arange(first, last + 1))
        at = int(ends[last])
        first = int(np.searchsorted(starts, at))
    index = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
    return starts[index], lengths[index]


BAD_PAYLOAD = "the payload of the record has a wrong CRC"

_SMALLEST, _LARGEST = 1 << 18, 1 << 20  # bytes of a block
_PIECE = 1 << 20
_WORD = 8
_FIRST = 1 << 16  # bytes: the first event of a file is shorter
_HEAD = 64  # bytes that identify a file: its first wall time is in them


class Block(NamedTuple):
    """Some complete records, ``found`` in ``data``, which is at ``offset`` of the file.

    Only the last payload has been verified, but all lengths: a record follows each of the others.
    """

    data: bytearray
    offset: int
    found: _Found

    def place(self, record: int) -> tuple[int, int]:
        """Return where ``record`` begins in the file, and its size."""
        starts, lengths = self.found
        return self.offset + int(starts[record]), int(lengths[record]) + FRAME_BYTES

    def rows(self, index: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """Return the records ``index``, of ``length`` bytes of payload each, as rows.

        A row is a whole number of words, so meaningless bytes may follow the record.
        """
        width = -(-(length + FRAME_BYTES) // _WORD) * _WORD
        windows = np.ndarray((len(self.data) - width + 1,), f"V{width}", self.data, 0, (1,))
        starts, _ = self.found
        return windows[starts[index]].view(np.uint8).reshape(-1, width)


class RecordReader:
    """Reads the records of a file, and those that are appended later.

    ``partial``: bytes of a truncated one at the end.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.records = 0
        self.partial = 0
        self._head = b""
        self._version: tuple[int, float] | None = None
        self._passed: list[Damage] = []
        self._tail: Damage | None = None
        self._unreadable: Damage | None = None

    @property
    def damages(self) -> list[Damage]:
        last = [damage for damage in (self._tail, self._unreadable) if damage]
        return sorted(self._passed) + last

    def is_replaced(self, path: AnyPath) -> bool:
        """Return whether there is another file at ``path`` now, a shorter one or none."""
        self.path = path
        # Inodes are reused, and some file systems make them up at each call.
        try:
            if self._version is not None and _version_of(path) == self._version:
                return False
            with path.open() if isinstance(path, StorePath) else _opened(path) as file:
                if _size_of(file) < self.size:
                    return True
                file.seek(0)
                return file.read(len(self._head)) != self._head
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def blocks(self) -> Iterator[Block]:
        self._unreadable = None
        path = self.path
        with path.open_expected() if isinstance(path, StorePath) else _opened(path) as file:
            size = _size_of(file)
            self._version = _version_of(path)
            if size <= self.size:
                return
            self._tail, self.partial = None, 0
            reach = _SMALLEST
            while reach and self.offset < size:
                reach = min(reach, size - self.offset)
                block = self._load(file, reach)
                if not len(block.found[0]):
                    reach = self._pass_obstacle(file, size, reach)
                    continue
                begin, length = block.place(-1)
                if _is_sound(file, begin, size):
                    self.offset = begin + length
                    reach = max(min(2 * reach, _LARGEST), _SMALLEST)
                    yield self._counted(block)
                else:
                    self.offset = begin
                    starts, lengths = block.found
                    yield self._counted(block._replace(found=(starts[:-1], lengths[:-1])))
                    reach = self._pass_bad_payload(file, begin + length, size)
            self.size = size

    def skip_rest(self, error: OSError) -> None:
        reason = f"it cannot be read: {error.strerror or error}"
        self._unreadable = Damage(self.path, self.offset, 0, reason)

    def bad_payload(self, offset: int, length: int) -> None:
        self.records -= 1
        self._pass(offset, length, BAD_PAYLOAD)

    def _pass(self, offset: int, skipped: int, reason: str) -> None:
        self._passed.append(Damage(self.path, offset, skipped, reason))

    def _load(self, file: _File, length: int) -> Block:
        data = bytearray(length + _WORD - 1)
        file.seek(self.offset)
        view, got = memoryview(data)[:length], 0
        while got < length and (count := file.readinto(view[got:])):
            got += count
        return Block(data, self.offset, _walk(data, got))

    def _counted(self, block: Block) -> Block:
        self.records += len(block.found[0])
        if block.offset == 0:
            self._head = bytes(block.data[: min(_HEAD, self.offset)])
        return block

    def _pass_bad_payload(self, file: _File, end: int, size: int) -> int:
        """Move past the record at the offset; return how many bytes to read next, 0 at the end."""
        begin = self.offset
        if size - end < HEADER_BYTES:
            # Not passed: what follows later may show that its length is wrong.
            self._tail = Damage(self.path, begin, end - begin, BAD_PAYLOAD)
            self.partial = size - end
            return 0
        if payload_length(_read_at(file, end, HEADER_BYTES)) is None:
            # Its length is wrong, or it is truncated and contains the next ones.
            return self._pass_to_next_sound(file, size, BAD_PAYLOAD)
        self.offset = end
        self._pass(begin, end - begin, BAD_PAYLOAD)
        return _SMALLEST

    def _pass_obstacle(self, file: _File, size: int, reach: int) -> int:
        """Move past what is not a record; return how many bytes to read next, 0 at the end."""
        rest = size - self.offset
        length = payload_length(_read_at(file, self.offset, HEADER_BYTES))
        if length is not None and length >= LIMIT_BYTES:
            return self._pass_to_next_sound(file, size, "the length of the record is impossible")
        if length is not None and reach < length + FRAME_BYTES <= rest:
            return length + FRAME_BYTES
        if length is not None or self._is_begun(file, rest):
            self.partial = rest
            return 0
        return self._pass_to_next_sound(file, size, "no record begins here")

    def _is_begun(self, file: _File, rest: int) -> bool:
        """Return whether the last ``rest`` bytes may be the start of a header."""
        if rest >= HEADER_BYTES:
            return False
        begun = _read_at(file, self.offset, rest)
        length = begun[:_LENGTH_BYTES].ljust(_LENGTH_BYTES, b"\0")
        limit = LIMIT_BYTES if self.offset else _FIRST
        is_below = int.from_bytes(length, "little") < limit
        return is_below and check_of(length).startswith(begun[_LENGTH_BYTES:])

    def _pass_to_next_sound(self, file: _File, size: int, reason: str) -> int:
        begin = self.offset
        found = _next_sound(file, begin + 1, size) if size - begin > FRAME_BYTES else None
        if found is None:
            # Not passed: its end may become known later.
            self._tail = Damage(self.path, begin, size - begin, reason)
            return 0
        self.offset = found
        self._pass(begin, found - begin, reason)
        return _SMALLEST


def _next_sound(file: _File, offset: int, size: int) -> int | None:
    reach = 1 << 12
    while offset < size:
        data = _read_at(file, offset, min(reach + HEADER_BYTES - 1, size - offset))
        starts, lengths = _checked(data, 0, np.flatnonzero(_fours(_zeros(data, 0, len(data)))))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            whole = offset + start + length + FRAME_BYTES <= size
            if whole and _is_sound(file, offset + start, size):
                return int(offset + start)
        offset += reach
        reach = min(2 * reach, _PIECE)
    return None


def _is_sound(file: _File, offset: int, size: int) -> bool:
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


def _read_at(file: _File, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
