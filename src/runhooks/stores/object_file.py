"""``ObjectFile``: an object of a store as a file that is read."""

from __future__ import annotations

import io
import os

from runhooks.stores.read_ahead import ReadAhead, Window


class ObjectFile(io.RawIOBase):
    """The first ``size`` bytes of the object ``key``.

    Args:
        ahead: Reads it.
        key: Its key.
        size: How many bytes it has.
        window_bytes: How many are read at once, even if fewer are asked for.
    """

    def __init__(self, ahead: ReadAhead, key: str, size: int, window_bytes: int = 0) -> None:
        self._ahead = ahead
        self._key = key
        self._size = size
        self._window_bytes = window_bytes
        self._window = Window(0, b"")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        begin = self._at
        end = self._size if size is None or size < 0 else min(begin + size, self._size)
        if end <= begin:
            return b""
        self._at = end
        start, content = self._around(begin, end)
        return content[begin - start : end - start]

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self.read(len(buffer))
        memoryview(buffer).cast("B")[: len(content)] = content
        return len(content)

    def _around(self, begin: int, end: int) -> Window:
        start, content = self._window
        if not start <= begin <= end <= start + len(content):
            far = min(max(end, begin + self._window_bytes), self._size)
            self._window = self._ahead.window(self._key, begin, far)
        return self._window
