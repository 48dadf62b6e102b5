"""``ScalarReader``: the scalars of records of one layout."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.record import HEADER_BYTES, check_of
from runhooks.events.reading.layout import Layout, ScalarField
from runhooks.events.reading.metadata import SCALAR, kind_of_tensor
from runhooks.events.reading.tag_lookup import TagLookup
from runhooks.events.reading.tag_registry import TagRegistry


class ScalarPiece(NamedTuple):
    """The scalars of some records, ``k`` of each.

    Attributes:
        records: The indices of the records in the block, int64 ``[n]``.
        ids: The numbers of the tags, int32 ``[n, k]``.
        steps: int64 ``[n]``.
        wall_times: Seconds since the epoch, float64 ``[n]``.
        values: float64 ``[n, k]``.
    """

    records: NDArray[np.int64]
    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    values: NDArray[np.float64]


class Reading(NamedTuple):
    """The scalars of some rows, and the indices of the records without them.

    ``bad``: records with a wrong CRC. ``left``: records to be decoded one by one.
    """

    piece: ScalarPiece
    bad: NDArray[np.int64]
    left: NDArray[np.int64]


def payload_of(row: NDArray[np.uint8], length: int) -> bytes | None:
    """Return the payload of a record; None if its CRC is wrong."""
    payload = row[HEADER_BYTES : HEADER_BYTES + length].tobytes()
    check = row[HEADER_BYTES + length : HEADER_BYTES + length + 4].tobytes()
    return payload if check_of(payload) == check else None


class ScalarReader:
    """Reads the wanted scalars of records of ``layout``, which was learnt from ``payload``.

    ``registry``: that of the run of ``payload``. The reader serves all other runs as well, unless
    it takes metadata that was sent before to know that the records hold scalars.
    """

    def __init__(self, layout: Layout, payload: bytes, registry: TagRegistry) -> None:
        self.layout = layout
        self._registry = None if all(s.is_plain for s in layout.scalars) else registry
        self._numbers = registry.numbers
        self._single = len(layout.scalars) == 1
        if self._single:
            begin, end = layout.scalars[0].tag_at
            self._lookup = TagLookup(HEADER_BYTES + begin, HEADER_BYTES + end)
        else:
            ids = [self._id(scalar.tag) for scalar in layout.scalars]
            self._wanted = [place for place, tag_id in enumerate(ids) if tag_id >= 0]
            self._ids = np.array([ids[place] for place in self._wanted], np.int32)
            self._crc = np.array([layout.constant_crc(payload)], np.uint32)

    def serves(self, registry: TagRegistry) -> bool:
        """Return whether this reads records of the run with the tags ``registry``."""
        return self._registry is None or self._registry is registry

    def read(
        self, index: NDArray[np.int64], rows: NDArray[np.uint8], registry: TagRegistry
    ) -> Reading:
        """Return the scalars of ``rows``, the records ``index``, all of the layout."""
        reading = self._read_one(index, rows) if self._single else self._read_several(index, rows)
        metadata = self.layout.scalars[0].metadata if self._single else None
        if metadata is not None:
            names = self._numbers.names
            registry.add_metadata((names[i] for i in np.unique(reading.piece.ids)), metadata)
        if not self._single and len(reading.piece.records):
            for scalar in self.layout.scalars:
                if scalar.metadata is not None:
                    registry.add_metadata([scalar.tag], scalar.metadata)
        return reading

    def _read_one(self, index: NDArray[np.int64], rows: NDArray[np.uint8]) -> Reading:
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

    def _read_several(self, index: NDArray[np.int64], rows: NDArray[np.uint8]) -> Reading:
        right = self.layout.verified(rows, self._crc)
        ids = np.broadcast_to(self._ids, (int(right.sum()), len(self._ids)))
        scalars = [self.layout.scalars[place] for place in self._wanted]
        piece = self._piece(index[right], rows[right], ids, scalars)
        return Reading(piece, index[~right], index[:0])

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
        while len(unknown) and self._add(rows[unknown]):
            slots[unknown] = self._lookup.slots(rows[unknown])
            unknown = unknown[slots[unknown] < 0]
        return slots

    def _add(self, rows: NDArray[np.uint8]) -> bool:
        """Add new tags of ``rows`` whose CRC is right; return whether there are any."""
        crcs = self.layout.constant_crcs(rows)
        right = self.layout.verified(rows, crcs)
        rows, crcs = rows[right], crcs[right]
        first = self._lookup.distinct(rows)
        tags = [_text(tag) for tag in self._lookup.tags(rows[first])]
        if self._registry is not None:
            scalar = [kind_of_tensor(self._registry.metadata(tag)) == SCALAR for tag in tags]
            first = first[scalar]
            tags = list(itertools.compress(tags, scalar))
        ids = np.array([self._id(tag) for tag in tags], np.int32)
        self._lookup.add(rows[first], ids, crcs[first])
        return len(ids) > 0

    def _id(self, tag: str) -> int:
        return self._numbers.id(tag) if self._numbers.wanted.kind(SCALAR) else -1


def _text(tag: bytes) -> str:
    return tag.decode(errors="backslashreplace")
