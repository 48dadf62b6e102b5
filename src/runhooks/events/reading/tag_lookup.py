"""``TagLookup``: which tag it is, for many records at once.

The letters of a tag are compared as words of eight bytes. Their hash points into a table of the
tags that were seen; those that find another tag there are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_SLOTS_A_TAG = 64  # in the table, of a power of two, so that few tags meet


class TagLookup:
    """The tags at bytes ``[begin:end]`` of rows, in slots from 0 on, in the order they are added.

    ``ids``: int32, ``crcs``: uint32, what was added with the tag of each slot.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        words = range(begin // 8, -(-end // 8)) if end > begin else range(0)
        mask = np.zeros(8 * words.stop, np.uint8)
        mask[begin:end] = 0xFF
        self._masks = [(word, mask.view(np.uint64)[word]) for word in words]
        self._slots: dict[bytes, int] = {}
        self._table = np.zeros(_SLOTS_A_TAG * 16, np.int32)
        self._known = np.zeros((16, len(words)), np.uint64)
        self.ids = np.zeros(16, np.int32)
        self.crcs = np.zeros(16, np.uint32)

    def __contains__(self, row: NDArray[np.uint8]) -> bool:
        return self._tag(row) in self._slots

    def add(self, row: NDArray[np.uint8], tag_id: int, crc: int) -> None:
        """Give the tag of ``row``, which has none, the next slot."""
        slot = len(self._slots)
        if slot == len(self.ids):
            self._known, self.ids = _doubled(self._known), _doubled(self.ids)
            self.crcs = _doubled(self.crcs)
            self._table = np.zeros(_SLOTS_A_TAG * len(self.ids), np.int32)
            self._put(self._known[:slot].T, np.arange(slot))
        self._slots[self._tag(row)] = slot
        words = self._words(row[None])
        for place, word in enumerate(words):
            self._known[slot, place] = word[0]
        self.ids[slot], self.crcs[slot] = tag_id, crc
        self._put(words, np.array([slot]))

    def slots(self, rows: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return the slot of each of ``rows``, uint8 ``[n, width]``, -1 if none: int32 ``[n]``."""
        if not self._slots:
            return np.full(len(rows), -1, np.int32)
        words = self._words(rows)
        slots = self._table.take(self._places(words, len(rows)))
        wrong = np.zeros(len(rows), np.uint64)
        for place, word in enumerate(words):
            wrong |= word ^ self._known[:, place].take(slots)
        missed = np.flatnonzero(wrong)
        if len(missed):
            slots[missed] = [self._slots.get(self._tag(row), -1) for row in rows[missed]]
        return slots

    def _put(self, words: Iterable[NDArray[np.uint64]], slots: NDArray[np.int64]) -> None:
        places = self._places(words, len(slots))
        # Where it is taken the first stays. Slot 0 may stand for none: it is compared anyhow.
        free = self._table[places] == 0
        self._table[places[free]] = slots[free]

    def _places(self, words: Iterable[NDArray[np.uint64]], count: int) -> NDArray[np.uint64]:
        hashes = np.zeros(count, np.uint64)
        for word in words:
            hashes ^= word
            hashes *= _FACTOR
            hashes ^= hashes >> _FOLD
        return hashes * _FACTOR >> np.uint64(65 - len(self._table).bit_length())

    def _tag(self, row: NDArray[np.uint8]) -> bytes:
        return row[self._begin : self._end].tobytes()

    def _words(self, rows: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
        columns = rows.view(np.uint64)
        return [columns[:, at] & mask for at, mask in self._masks]


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)])
