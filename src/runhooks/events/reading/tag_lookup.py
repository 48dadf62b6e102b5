"""``TagLookup``: the tags of many records at once.

The letters of a tag are compared as words of eight bytes. Their hash points into a table of the
known tags; the few that find another tag at their place are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_FEWEST = 16  # tags that there is room for
_PLACES_A_TAG = 64  # in the table, a power of two, so that few tags share a place


class TagLookup:
    """The tags at bytes ``[begin:end]`` of rows, in slots from 0 on, in the order they are added.

    Attributes:
        ids: The numbers that were added with the tags, by slot, int32.
        crcs: The CRCs that were added with the tags, by slot, uint32.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        words = range(begin // 8, -(-end // 8)) if end > begin else range(0)
        mask = np.zeros(8 * words.stop, np.uint8)
        mask[begin:end] = 0xFF
        self._masks = [(word, mask.view(np.uint64)[word]) for word in words]
        self._slots: dict[bytes, int] = {}
        self._table = np.zeros(0, np.int32)  # slot + 1, or 0 where there is no tag
        self._known = np.zeros((0, len(words)), np.uint64)
        self.ids = np.zeros(0, np.int32)
        self.crcs = np.zeros(0, np.uint32)

    def add(
        self, rows: NDArray[np.uint8], ids: NDArray[np.int32], crcs: NDArray[np.uint32]
    ) -> None:
        """Give the tags of ``rows``, which are new and distinct, the next slots."""
        begin = len(self._slots)
        end = begin + len(rows)
        if end > len(self.ids):
            self._grow(1 << (end - 1).bit_length(), begin)
        slots = np.arange(begin, end)
        self._slots.update(zip(self.tags(rows), slots.tolist(), strict=True))
        words = self._words(rows)
        for place, word in enumerate(words):
            self._known[slots, place] = word
        self.ids[slots], self.crcs[slots] = ids, crcs
        self._put(words, slots)

    def slots(self, rows: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return the slot of each of ``rows``, uint8 ``[n, width]``, -1 if none: int32 ``[n]``."""
        if not self._slots:
            return np.full(len(rows), -1, np.int32)
        words = self._words(rows)
        slots = self._table.take(self._places(words, len(rows))) - np.int32(1)
        wrong = np.zeros(len(rows), np.uint64)
        for place, word in enumerate(words):
            wrong |= word ^ self._known[:, place].take(slots, mode="wrap")
        missed = np.flatnonzero((wrong != 0) & (slots >= 0))
        if len(missed):
            slots[missed] = [self._slots.get(tag, -1) for tag in self.tags(rows[missed])]
        return slots

    def tags(self, rows: NDArray[np.uint8]) -> list[bytes]:
        """Return the tags of ``rows``."""
        return [row[self._begin : self._end].tobytes() for row in rows]

    def distinct(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the indices of some of ``rows``, all with distinct tags; of most tags, one."""
        _, first = np.unique(self._hashes(self._words(rows), len(rows)), return_index=True)
        return np.sort(first)

    def _grow(self, capacity: int, count: int) -> None:
        capacity = max(capacity, _FEWEST)
        self._known, self.ids, self.crcs = (
            np.concatenate(
                [array, np.zeros((capacity - len(array), *array.shape[1:]), array.dtype)]
            )
            for array in (self._known, self.ids, self.crcs)
        )
        self._table = np.zeros(_PLACES_A_TAG * capacity, np.int32)
        self._put(self._known[:count].T, np.arange(count))

    def _put(self, words: Iterable[NDArray[np.uint64]], slots: NDArray[np.int64]) -> None:
        # Of several tags at one place any may stay: the others are found one by one.
        self._table[self._places(words, len(slots))] = slots + 1

    def _places(self, words: Iterable[NDArray[np.uint64]], count: int) -> NDArray[np.int64]:
        shift = np.uint64(65 - len(self._table).bit_length())
        # Signed, as indices of NumPy 1 have to be.
        return (self._hashes(words, count) >> shift).view(np.int64)

    def _hashes(self, words: Iterable[NDArray[np.uint64]], count: int) -> NDArray[np.uint64]:
        hashes = np.zeros(count, np.uint64)
        for word in words:
            hashes ^= word
            hashes *= _FACTOR
            hashes ^= hashes >> _FOLD
        return hashes * _FACTOR

    def _words(self, rows: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
        columns = rows.view(np.uint64)
        return [columns[:, at] & mask for at, mask in self._masks]
