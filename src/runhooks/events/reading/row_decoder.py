"""``RowDecoders``: the scalars of records of one length, for each length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.layout import learn
from runhooks.events.reading.scalar_event import ScalarEvents
from runhooks.events.reading.scalar_reader import Reading, ScalarReader, payload_of
from runhooks.events.reading.tag_registry import TagNumbers, TagRegistry

#: Fewer records of one length are decoded one by one.
FEW_ROWS = 24

_MOST_LAYOUTS = 32
_MOST_MISSES = 4


class RowDecoders:
    """Decodes records of any length; shared by all runs that are read together.

    Attributes:
        numbers: The numbers of the tags.
        single: Decodes records one by one.
    """

    def __init__(self, numbers: TagNumbers) -> None:
        self.numbers = numbers
        self.single = ScalarEvents()
        self._decoders: dict[int, RowDecoder] = {}

    def __getitem__(self, length: int) -> RowDecoder:
        if length not in self._decoders:
            self._decoders[length] = RowDecoder(length)
        return self._decoders[length]


class RowDecoder:
    """Learns the layouts of records with payloads of ``length`` bytes, and reads the records."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._readers: list[ScalarReader] = []

    def decode(
        self, index: NDArray[np.int64], rows: NDArray[np.uint8], registry: TagRegistry
    ) -> tuple[list[Reading], NDArray[np.int64]]:
        """Decode ``rows``, the records ``index``; return the scalars and the rest of ``index``.

        ``registry``: that of their run.
        """
        readings: list[Reading] = []
        unlike: list[NDArray[np.int64]] = []
        for reader in tuple(self._readers):
            if len(index) >= FEW_ROWS and reader.serves(registry):
                index, rows = self._read(reader, index, rows, registry, readings)
        misses = 0
        while len(index) >= FEW_ROWS and misses < _MOST_MISSES:
            before = len(index)
            learnt = self._learn(rows[0], registry)
            if learnt is None:
                unlike.append(index[:1])
                index, rows = index[1:], rows[1:]
            else:
                self._readers.append(learnt)
                index, rows = self._read(learnt, index, rows, registry, readings)
            misses += before - len(index) < FEW_ROWS
        del self._readers[_MOST_LAYOUTS:]
        return readings, np.concatenate([*unlike, index])

    def _learn(self, row: NDArray[np.uint8], registry: TagRegistry) -> ScalarReader | None:
        payload = payload_of(row, self._length)
        if payload is None:
            return None
        try:
            layout = learn(payload, registry)
        except ValueError:  # malformed; decoding it alone says why
            return None
        return ScalarReader(layout, payload, registry) if layout else None

    def _read(
        self,
        reader: ScalarReader,
        index: NDArray[np.int64],
        rows: NDArray[np.uint8],
        registry: TagRegistry,
        readings: list[Reading],
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Read the rows with the layout of ``reader``; return the others."""
        matched = reader.layout.matches(rows)
        if not matched.any():
            return index, rows
        # The reader that matched last is tried first.
        self._readers.remove(reader)
        self._readers.insert(0, reader)
        if matched.all():
            readings.append(reader.read(index, rows, registry))
            return index[:0], rows[:0]
        readings.append(reader.read(index[matched], rows[matched], registry))
        return index[~matched], rows[~matched]
