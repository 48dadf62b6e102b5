"""``ReadAhead``: reads objects of a store before they are asked for, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
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
