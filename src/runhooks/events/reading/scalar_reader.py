"""``ScalarReader``: the scalars of records of one layout."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.kinds import SCALAR
from runhooks.events.reading.layout import Layout, ScalarField, learn
from runhooks.events.reading.tag_lookup import TagLookup
from runhooks.events.reading.tag_registry import TagRegistry
from runhooks.events.record import HEADER_BYTES, check_of

_SOME = 64


class ScalarPiece(NamedTuple):
    """Scalars out of some records, ``k`` of each.

    ``records``: int64 ``[n]``, which records of the block. ``ids``: int32 ``[n, k]``, which tags.
    ``steps``: int64 ``[n]``; ``wall_times``: float64 ``[n]``; ``values``: float64 ``[n, k]``.
    """

    records: NDArray[np.int64]
    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    values: NDArray[np.float64]


class Reading(NamedTuple):
    """What became of rows: ``piece``, and the indices of those that ``piece`` does not have.

    ``bad``: their check fails. ``left``: they are to be looked at one by one.
    """

    piece: ScalarPiece
    bad: NDArray[np.int64]
    left: NDArray[np.int64]


def payload_of(row: NDArray[np.uint8], length: int) -> bytes | None:
    """Return the payload of a record; None if its check fails."""
    payload = row[HEADER_BYTES : HEADER_BYTES + length].tobytes()
    check = row[HEADER_BYTES + length : HEADER_BYTES + length + 4].tobytes()
    return payload if check_of(payload) == check else None


class ScalarReader:
    """Reads the wanted scalars of records of ``layout``, which was learnt from ``payload``."""

    def __init__(self, layout: Layout, payload: bytes, registry: TagRegistry) -> None:
        self.layout = layout
        self._registry = registry
        self._single = len(layout.scalars) == 1
        if self._single:
            begin, end = layout.scalars[0].tag_at
            self._lookup = TagLookup(HEADER_BYTES + begin, HEADER_BYTES + end)
        else:
            ids = [self._id(scalar) for scalar in layout.scalars]
            self._wanted = [place for place, tag_id in enumerate(ids) if tag_id >= 0]
            self._ids = np.array([ids[place] for place in self._wanted], np.int32)
            self._crc = np.array([layout.constant_crc(payload)], np.uint32)

    def read(self, index: NDArray[np.int64], rows: NDArray[np.uint8]) -> Reading:
        """Return the scalars of ``rows``: the records ``index``, which are of the layout."""
        if not self._single:
            right = self.layout.verified(rows, self._crc)
            ids = np.broadcast_to(self._ids, (int(right.sum()), len(self._ids)))
            scalars = [self.layout.scalars[place] for place in self._wanted]
            piece = self._piece(index[right], rows[right], ids, scalars)
            return Reading(piece, index[~right], index[:0])
        slots = self._slots(rows)
        known = slots >= 0
        left = index[~known]
        if len(left):
            index, rows, slots = index[known], rows[known], slots[known]
        right = self.layout.verified(rows, self._lookup.crcs.take(slots))
        ids = self._lookup.ids.take(slots)
        keep = right & (ids >= 0)
        bad = index[~right]
        if not keep.all():
            index, rows, ids = index[keep], rows[keep], ids[keep]
        return Reading(self._piece(index, rows, ids[:, None], self.layout.scalars), bad, left)

    def _piece(
        self,
        index: NDArray[np.int64],
        rows: NDArray[np.uint8],
        ids: NDArray[np.int32],
        scalars: list[ScalarField],
    ) -> ScalarPiece:
        values = np.empty((len(rows), len(scalars)))
        for place, scalar in enumerate(scalars):
            values[:, place] = self.layout.numbers(rows, scalar)
        return ScalarPiece(
            index, ids, self.layout.steps(rows), self.layout.wall_times(rows), values
        )

    def _slots(self, rows: NDArray[np.uint8]) -> NDArray[np.int32]:
        slots = self._lookup.slots(rows)
        unknown = np.flatnonzero(slots < 0)
        while len(unknown):
            # A few at a time: the tags of the others are mostly among these.
            for row in rows[unknown[:_SOME]]:
                self._add(row)
            slots[unknown] = self._lookup.slots(rows[unknown])
            unknown = unknown[_SOME:]
            unknown = unknown[slots[unknown] < 0]
        return slots

    def _add(self, row: NDArray[np.uint8]) -> None:
        """Take in the tag of ``row``, if its check holds and the tag is one of scalars."""
        if row in self._lookup:
            return
        payload = payload_of(row, self.layout.length)
        layout = None if payload is None else learn(payload, self._registry)
        if payload is not None and layout is not None:
            crc = self.layout.constant_crc(payload)
            self._lookup.add(row, self._id(layout.scalars[0]), crc)

    def _id(self, scalar: ScalarField) -> int:
        return self._registry.id(scalar.tag) if self._registry.wanted.kind(SCALAR) else -1
