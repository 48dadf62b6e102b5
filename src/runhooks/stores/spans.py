"""``Spans``: short ranges of objects, many of them in one request."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from runhooks.stores.store import Store

_GAP_BYTES = 64 << 10  # that are rather read than asked around
_SPAN_BYTES = 1 << 20  # of what is read for a single range: the next one is close to it
_MOST_BYTES = 8 << 20  # of a span

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
        if first - end > _GAP_BYTES or last - begin > _MOST_BYTES:
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
