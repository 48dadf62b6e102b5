"""Reading objects: ahead of time, as files, and short ranges of many in one request."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from runhooks.stores.interruption import interrupting
from runhooks.stores.store import Store

#: Bytes that are read at once.
WINDOW_BYTES = 8 << 20

_MOST_AT_ONCE = 16
_MOST_BYTES = 64 << 20  # read, or being read, that nobody has asked for yet


class Window(NamedTuple):
    """Some bytes of an object, from ``start`` on."""

    start: int
    content: bytes


class _Expected(NamedTuple):
    key: str
    start: int
    end: int


class ReadAhead:
    """Reads windows of the objects of ``store``. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read_to: dict[str, int] = {}  # how far each object was read
        self._expected: dict[str, _Expected] = {}  # what nobody has asked for yet, in order
        self._begun: dict[str, Future[bytes]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def expect(self, objects: Iterable[tuple[str, int]]) -> None:
        """Prepare to read what is new in ``objects``, keys and sizes in the order of reading."""
        with self._lock:
            self._end()
            for key, size in objects:
                start = self._read_to.get(key, 0)
                if start < size:
                    end = min(size, start + WINDOW_BYTES)
                    self._expected[key] = _Expected(key, start, end)

    def window(self, key: str, start: int, end: int) -> Window:
        """Return the bytes from ``start`` to ``end``, or those around them that were expected."""
        with self._lock:
            future = self._taken(key, start, end)
            self._read_to[key] = max(end, self._read_to.get(key, 0))
        if future is None:
            return Window(start, self._store.read(key, start, end))
        where, content = future
        with interrupting():
            return Window(where.start, content.result())

    def _taken(self, key: str, start: int, end: int) -> tuple[_Expected, Future[bytes]] | None:
        expected = self._expected.get(key)
        if expected is None or not expected.start <= start <= end <= expected.end:
            return None
        self._begin(expected)
        del self._expected[key]
        future = self._begun.pop(key)
        self._begin_next()
        return expected, future

    def _begin_next(self) -> None:
        size = 0
        for count, expected in enumerate(self._expected.values()):
            size += expected.end - expected.start
            if count >= _MOST_AT_ONCE or (count and size > _MOST_BYTES):
                return
            self._begin(expected)
        if not self._expected:
            self._end()

    def _begin(self, expected: _Expected) -> None:
        if expected.key not in self._begun:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-read-ahead")
            self._begun[expected.key] = self._threads.submit(self._store.read, *expected)

    def _end(self) -> None:
        for future in self._begun.values():
            future.cancel()
        self._begun.clear()
        self._expected.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


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


_GAP_BYTES = 64 << 10  # that are rather read than asked around
_SPAN_BYTES = 1 << 20  # of what is read for a single range: the next one is close to it
_SPAN_BYTES = 8 << 20  # of a span

Range = tuple[int, int]


class Spans:
    """Reads ranges of the objects of ``store``. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._key = ""
        self._last: tuple[Range, bytes] = (0, 0), b""  # of the object with this key

    def read(self, key: str, size: int, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes in ``ranges``, sorted, of an object of ``size`` bytes."""
        with self._lock:
            known, content = self._last if self._key == key else ((0, 0), b"")
        if len(ranges) != 1 or not _holds(known, ranges[0]):
            spans = list(_spans(ranges))
            if len(ranges) == 1:
                begin, end = ranges[0]
                spans = [(begin, max(end, min(begin + _SPAN_BYTES, size)))]
            found = dict(zip(spans, self._store.read_ranges(key, spans), strict=True))
            with self._lock:
                self._key, self._last = key, (spans[-1], found[spans[-1]])
        else:
            found = {known: content}
        return list(_cut(ranges, found))


def _spans(ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield ranges that together hold all of ``ranges``, with those that are close in one."""
    begin, end = ranges[0]
    for first, last in ranges[1:]:
        if first - end > _GAP_BYTES or last - begin > _SPAN_BYTES:
            yield begin, end
            begin, end = first, last
        end = max(end, last)
    yield begin, end


def _holds(span: Range, wanted: Range) -> bool:
    return span[0] <= wanted[0] and wanted[1] <= span[1]


def _cut(ranges: Sequence[Range], spans: dict[Range, bytes]) -> Iterator[bytes]:
    rest = iter(spans.items())
    span, content = next(rest)
    for wanted in ranges:
        while not _holds(span, wanted):
            span, content = next(rest)
        yield content[wanted[0] - span[0] : wanted[1] - span[0]]
