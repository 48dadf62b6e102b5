"""``ReadAhead``: objects that are read next, several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from runhooks.stores.interruption import interrupting
from runhooks.stores.store import Store

#: Bytes of an object that are read at once.
WINDOW_BYTES = 8 << 20

_MOST_AT_ONCE = 16
_MOST_BYTES = 64 << 20  # that are read before somebody asks for them


class _Window(NamedTuple):
    key: str
    begin: int
    end: int


class ReadAhead:
    """Reads the first new bytes of the objects of ``store`` that are read next, several at a time.

    One thread at a time may use it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_to: dict[str, int] = {}  # how far each object was read
        self._expected: deque[_Window] = deque()  # in the order in which they are asked for
        self._begun: dict[str, tuple[_Window, Future[bytes]]] = {}
        self._begun_bytes = 0
        self._threads: ThreadPoolExecutor | None = None

    def expect(self, objects: Iterable[tuple[str, int]]) -> None:
        """Prepare to read what is new in ``objects``, keys and sizes in the order of reading."""
        for _, future in self._begun.values():
            future.cancel()
        self._begun, self._begun_bytes = {}, 0
        begins = ((key, self._read_to.get(key, 0), size) for key, size in objects)
        self._expected = deque(
            _Window(key, begin, min(size, begin + WINDOW_BYTES))
            for key, begin, size in begins
            if begin < size
        )

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``, or fewer if they were expected."""
        self._begin()
        content = None
        if key in self._begun:
            window, future = self._begun.pop(key)
            self._begun_bytes -= window.end - window.begin
            if window.begin == start:
                with interrupting():
                    content = future.result()
        if content is None:
            content = self._store.read(key, start, end)
        self._read_to[key] = max(start + len(content), self._read_to.get(key, 0))
        return content

    def _begin(self) -> None:
        """Begin to read what is expected, as much as fits in memory."""
        while self._expected and self._begun_bytes < _MOST_BYTES:
            window = self._expected.popleft()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-read-ahead")
            self._begun[window.key] = window, self._threads.submit(self._store.read, *window)
            self._begun_bytes += window.end - window.begin
        if not self._expected and self._threads is not None:
            self._threads.shutdown(wait=False)  # when it has read them
            self._threads = None
