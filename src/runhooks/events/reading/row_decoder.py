"""``RowDecoder``: the scalars of records that have one length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.layout import learn
from runhooks.events.reading.scalar_reader import Reading, ScalarReader, payload_of
from runhooks.events.reading.tag_registry import TagRegistry

#: Fewer records of one length are not worth it.
FEW_ROWS = 4

_MOST_LAYOUTS = 32


class RowDecoder:
    """Learns the layouts of records with payloads of ``length`` bytes, and reads the records."""

    def __init__(self, length: int, registry: TagRegistry) -> None:
        self._length = length
        self._registry = registry
        self._readers: list[ScalarReader] = []

    def decode(
        self, index: NDArray[np.int64], rows: NDArray[np.uint8]
    ) -> tuple[list[Reading], NDArray[np.int64]]:
        """Return what is read of ``rows``, the records ``index``, and which are of no layout."""
        readings: list[Reading] = []
        unlike: list[NDArray[np.int64]] = []
        for reader in tuple(self._readers):
            if len(index):
                index, rows = self._read(reader, index, rows, readings)
        for _ in range(_MOST_LAYOUTS):
            if len(index) < FEW_ROWS:
                break
            learnt = self._learn(rows[0])
            if learnt is None:
                unlike.append(index[:1])
                index, rows = index[1:], rows[1:]
            else:
                self._readers.append(learnt)
                index, rows = self._read(learnt, index, rows, readings)
        del self._readers[_MOST_LAYOUTS:]
        return readings, np.concatenate([*unlike, index])

    def _learn(self, row: NDArray[np.uint8]) -> ScalarReader | None:
        payload = payload_of(row, self._length)
        if payload is None:
            return None
        try:
            layout = learn(payload, self._registry)
        except ValueError:  # it is no event; who looks at it alone says why
            return None
        return ScalarReader(layout, payload, self._registry) if layout else None

    def _read(
        self,
        reader: ScalarReader,
        index: NDArray[np.int64],
        rows: NDArray[np.uint8],
        readings: list[Reading],
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Read what is of the layout of ``reader``; return the rest."""
        matched = reader.layout.matches(rows)
        if not matched.any():
            return index, rows
        # What was of use last is tried first.
        self._readers.remove(reader)
        self._readers.insert(0, reader)
        if matched.all():
            readings.append(reader.read(index, rows))
            return index[:0], rows[:0]
        readings.append(reader.read(index[matched], rows[matched]))
        return index[~matched], rows[~matched]
