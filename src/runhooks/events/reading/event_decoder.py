"""``EventDecoder``: what the records of a block say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.one_by_one import Fault, Log, OneByOne, OtherPoint
from runhooks.events.reading.record_reader import BAD_PAYLOAD, Block
from runhooks.events.reading.row_decoder import FEW_ROWS, RowDecoder
from runhooks.events.reading.rows import by_length, take_rows
from runhooks.events.reading.scalar_columns import ScalarColumns, in_order
from runhooks.events.reading.scalar_reader import Reading
from runhooks.events.reading.tag_registry import TagRegistry
from runhooks.events.record import FRAME_BYTES

_LONG = 1024  # bytes of a payload; longer ones are looked at one by one


class Decoded(NamedTuple):
    """What a block says, each in the order in which it was written.

    ``graph``: where in the block the last graph is, or None.
    """

    scalars: ScalarColumns
    points: list[OtherPoint]
    logs: list[Log]
    graph: tuple[int, int] | None
    faults: list[Fault]


class EventDecoder:
    """Decodes the blocks of a file, one after the other. ``registry``: the tags of the run."""

    def __init__(self, registry: TagRegistry) -> None:
        self._registry = registry
        self._decoders: dict[int, RowDecoder] = {}

    def decode(self, block: Block) -> Decoded:
        """Return what ``block`` says that is wanted. Every check is verified."""
        starts, lengths = block.found
        readings: list[Reading] = []
        left: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for length, index in by_length(lengths):
            if length > _LONG or len(index) < FEW_ROWS:
                left.append(index)
                continue
            decoder = self._decoders.setdefault(length, RowDecoder(length, self._registry))
            rows = take_rows(block.data, starts[index], length + FRAME_BYTES)
            read, unlike = decoder.decode(index, rows)
            readings += read
            left += [unlike, *(reading.left for reading in read)]
        others = OneByOne(self._registry, block)
        for record in np.sort(np.concatenate(left)).tolist():
            others.decode(record)
        bad = (record for reading in readings for record in reading.bad.tolist())
        faults = sorted([*others.faults, *(Fault(record, True, BAD_PAYLOAD) for record in bad)])
        pieces = [reading.piece for reading in readings]
        scalars = in_order(len(starts), pieces, others.scalars)
        return Decoded(scalars, others.points, others.logs, others.graph, faults)
