"""Templates of the records of scalars, one for each tag; in copies of them a few bytes are set.

Layout, by the field numbers of TensorFlow's ``event.proto`` and ``summary.proto``:

    12 bytes  header of the record
     1 + 8    wall_time = 1, double
     1 + k    step = 2, varint of k bytes; absent if 0
     1 + ...  summary = 5 {value = 1 {tag = 1, simple_value = 2: float, the last 4 bytes}}
     4 bytes  CRC of the payload
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format import wire
from runhooks.events.format.crc import crc32c
from runhooks.events.format.event import scalar_entry
from runhooks.events.format.record import frame

#: Where the 8 bytes of the time begin, and the bytes of the step.
TIME_AT, STEP_AT = 13, 22

#: Bytes at the end of a record: the value, then the CRC.
VALUE_BYTES, CHECK_BYTES = 4, 4

_STEP = b"\x10"
_MAX_TAGS = 10_000  # kept at most


class Templates(NamedTuple):
    """Records of tags of one length, for steps of one length.

    ``records``: uint8 ``[tags, length]``, zero where they vary. ``crcs``: uint32 ``[tags]``, of
    the payloads.
    """

    records: NDArray[np.uint8]
    crcs: NDArray[np.uint32]


class Places(NamedTuple):
    """Where the templates of some tags are: the row ``rows`` of the shape ``shapes``, ``[n]``."""

    shapes: NDArray[np.intp]
    rows: NDArray[np.intp]


class ScalarTemplates:
    """Makes the templates of new tags and keeps them."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._places = Places(np.empty(0, np.intp), np.empty(0, np.intp))  # by number
        self._shape_of_length: dict[int, int] = {}
        self._summaries: list[list[bytes]] = []  # by shape; the field of the event, its value zero
        self._made: dict[tuple[int, int], Templates] = {}

    def places(self, tags: Sequence[str]) -> Places:
        """Return where the templates of ``tags`` are; valid until the next call.

        Raises UnicodeEncodeError for a tag with lone surrogates.
        """
        try:
            numbers = self._numbers_of(tags)
        except KeyError:
            self._add(tags)
            numbers = self._numbers_of(tags)
        return Places(self._places.shapes.take(numbers), self._places.rows.take(numbers))

    def templates(self, shape: int, digits: int) -> Templates:
        """Return the templates of ``shape`` for steps of ``digits`` bytes as a varint, 0 to 10."""
        summaries = self._summaries[shape]
        made = self._made.get((shape, digits))
        if made is None or len(made.crcs) < len(summaries):
            step = _STEP + bytes(digits) if digits else b""
            payloads = [wire.double_field(1, 0.0) + step + summary for summary in summaries]
            records = np.frombuffer(b"".join(map(frame, payloads)), np.uint8)
            crcs = np.array([crc32c(payload) for payload in payloads], np.uint32)
            made = Templates(records.reshape(len(payloads), -1), crcs)
            self._made[shape, digits] = made
        return made

    def _numbers_of(self, tags: Sequence[str]) -> NDArray[np.intp]:
        return np.fromiter(map(self._numbers.__getitem__, tags), np.intp, len(tags))

    def _add(self, tags: Sequence[str]) -> None:
        if len(self._numbers) > _MAX_TAGS:
            self._forget()
        new = set(tags).difference(self._numbers)
        summaries = {tag: _summary(tag) for tag in new}  # before anything is kept: it may raise
        places = []
        for tag, summary in summaries.items():
            shape = self._shape_of_length.setdefault(len(summary), len(self._summaries))
            if shape == len(self._summaries):
                self._summaries.append([])
            self._numbers[tag] = len(self._numbers)
            places.append((shape, len(self._summaries[shape])))
            self._summaries[shape].append(summary)
        columns = np.array(places, np.intp).T
        self._places = Places(
            np.append(self._places.shapes, columns[0]), np.append(self._places.rows, columns[1])
        )


def _summary(tag: str) -> bytes:
    return wire.bytes_field(5, scalar_entry(tag, 0.0))
