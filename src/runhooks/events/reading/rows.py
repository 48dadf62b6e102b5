"""Scalars of records of one layout, read as rows of a table.

Records of one layout differ in the time, in the digits of the step, though not in their number, in
the values, and, if there is only one, in the letters of the tag. So a layout is learnt once, and
thousands of records are then read at a time.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import LocatedField
from runhooks.events.format.record import HEADER_BYTES, check_of, contributions, crc32c, masked
from runhooks.events.reading.messages import (
    SCALAR,
    SIMPLE_VALUE,
    Metadata,
    ParsedEvent,
    ParsedValue,
    TagLookup,
    TagNumbers,
    TagRegistry,
    kind_of,
    kind_of_tensor,
    parse_event,
    text_at,
)
from runhooks.events.reading.tensor import parse_tensor

_FLOATS = {1: "<f4", 2: "<f8"}  # by the number of the type


class ScalarField(NamedTuple):
    """One scalar of a layout: its tag, and where in the payload the tag and the number are.

    ``metadata``: that of the tag, if the payload contains it. ``is_plain``: whether it is a scalar
    whatever the metadata of the tag.
    """

    tag: str
    tag_at: tuple[int, int]
    number_at: tuple[int, int]
    dtype: str
    metadata: Metadata | None
    is_plain: bool


class Layout:
    """Where the time, the step, the tags and the numbers are in all payloads like ``payload``.

    The ``rows`` of its methods are records with payloads of ``length`` bytes, uint8 ``[n, width]``;
    see ``Block.rows``.
    """

    def __init__(self, payload: bytes, event: ParsedEvent, scalars: list[ScalarField]) -> None:
        self.scalars = scalars
        self.length = len(payload)
        self._time = event.wall_time.begin if event.wall_time else None
        self._step = range(event.step.begin, event.step.end) if event.step else range(0)
        self._varying = [at for scalar in scalars for at in range(*scalar.number_at)]
        if self._time is not None:
            self._varying += range(self._time, self._time + 8)
        mask = np.full(self.length, 0xFF, np.uint8)
        mask[self._varying] = 0
        mask[self._step] = 0x80  # the bit that says whether another digit follows
        self._varying += self._step
        if len(scalars) == 1:
            mask[slice(*scalars[0].tag_at)] = 0
        self._mask = _as_words(mask)
        self._template = _as_words(np.frombuffer(payload, np.uint8)) & self._mask

    def matches(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``rows`` have this layout: bool ``[n]``."""
        words = rows.view(np.uint64)
        wrong = np.zeros(len(rows), np.uint64)
        for at in np.flatnonzero(self._mask).tolist():
            wrong |= words[:, at] & self._mask[at] ^ self._template[at]
        right: NDArray[np.bool_] = wrong == 0
        return right

    def constant_crc(self, payload: bytes) -> int:
        """Return the CRC of ``payload`` with zeros in all varying bytes except the tag."""
        constant = bytearray(payload)
        for at in self._varying:
            constant[at] = 0
        return crc32c(bytes(constant))

    def constant_crcs(self, rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Return ``constant_crc`` of the payloads of ``rows``: uint32 ``[n]``."""
        payload = bytearray(rows[0, HEADER_BYTES : HEADER_BYTES + self.length].tobytes())
        tag = range(*self.scalars[0].tag_at)
        payload[tag.start : tag.stop] = bytes(len(tag))
        crcs = np.full(len(rows), self.constant_crc(bytes(payload)), np.uint32)
        for at in tag:
            crcs ^= self._contribution(rows, at)
        return crcs

    def verified(
        self, rows: NDArray[np.uint8], constant_crcs: NDArray[np.uint32]
    ) -> NDArray[np.bool_]:
        """Return which of ``rows`` have the right CRC of the payload: bool ``[n]``.

        ``constant_crcs``: uint32 ``[n]``, one for each row, or ``[1]``, for all.
        """
        crcs = np.zeros(len(rows), np.uint32) ^ constant_crcs
        for at in self._varying:
            crcs ^= self._contribution(rows, at)
        right: NDArray[np.bool_] = masked(crcs) == _column(rows, self.length, "<u4")
        return right

    def _contribution(self, rows: NDArray[np.uint8], at: int) -> NDArray[np.uint32]:
        """Return what the bytes at ``at`` of the payloads contribute to their CRCs."""
        return contributions(self.length - 1 - at).take(rows[:, HEADER_BYTES + at], mode="wrap")

    def wall_times(self, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the times of ``rows``, in seconds since the epoch: float64 ``[n]``."""
        if self._time is None:
            return np.zeros(len(rows))
        return _column(rows, self._time, "<f8").astype(np.float64)

    def steps(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the steps of ``rows``: int64 ``[n]``."""
        steps = np.zeros(len(rows), np.uint64)
        for place, at in enumerate(self._step):
            steps |= (rows[:, HEADER_BYTES + at] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        return steps.view(np.int64)

    def numbers(self, rows: NDArray[np.uint8], scalar: ScalarField) -> NDArray[np.float64]:
        """Return the numbers of ``rows`` at ``scalar``: float64 ``[n]``."""
        return _column(rows, scalar.number_at[0], scalar.dtype).astype(np.float64)


def learn(payload: bytes, registry: TagRegistry) -> Layout | None:
    """Return the layout of ``payload``; None if it holds anything but floating-point scalars.

    Metadata of its tags is put into ``registry``. Raises ValueError if it is malformed.
    """
    event = parse_event(payload)
    scalars = [scalar_field(payload, value, registry) for value in event.values]
    known = [scalar for scalar in scalars if scalar]
    return Layout(payload, event, known) if known and len(known) == len(scalars) else None


def scalar_field(payload: bytes, value: ParsedValue, registry: TagRegistry) -> ScalarField | None:
    """Return the floating-point scalar that ``value`` is; None if it is anything else.

    Metadata of its tag is put into ``registry``. Raises ValueError if it is malformed.
    """
    tag = text_at(payload, value.tag)
    metadata = registry.metadata_of(payload, value, tag)
    if value.content is None or kind_of(value, metadata) != SCALAR:
        return None
    tag_at = (value.tag.begin, value.tag.end) if value.tag else (0, 0)
    sent = metadata if value.metadata else None
    if value.content.number == SIMPLE_VALUE:
        number_at = value.content.begin, value.content.end
        return ScalarField(tag, tag_at, number_at, "<f4", sent, is_plain=True)
    tensor = parse_tensor(payload, value.content.begin, value.content.end)
    number = tensor.content or (tensor.numbers[0] if len(tensor.numbers) == 1 else None)
    dtype = _FLOATS.get(tensor.dtype)
    if dtype is None or not _is_one(number, dtype) or any(size != 1 for size in tensor.shape):
        return None
    number_at = number.begin, number.end
    return ScalarField(tag, tag_at, number_at, dtype, sent, is_plain=sent is not None)


def _is_one(number: LocatedField | None, dtype: str) -> TypeGuard[LocatedField]:
    return number is not None and number.end - number.begin == np.dtype(dtype).itemsize


def _as_words(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return ``content`` as the words of a row, with zeros around it."""
    words = np.zeros(-(-(HEADER_BYTES + len(content) + 4) // 8), np.uint64)
    words.view(np.uint8)[HEADER_BYTES : HEADER_BYTES + len(content)] = content
    return words


def _column(rows: NDArray[np.uint8], at: int, dtype: str) -> NDArray[Any]:
    """Return a view of the numbers at byte ``at`` of the payloads: ``[n]``."""
    if not len(rows):
        return np.empty(0, dtype)
    return np.ndarray((len(rows),), dtype, rows, HEADER_BYTES + at, (rows.strides[0],))


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

    def _slots(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        slots = self._lookup.slots(rows)
        unknown = slots < 0
        if unknown.any():
            self._add(rows[unknown])
            slots = self._lookup.slots(rows)
        return slots

    def _add(self, rows: NDArray[np.uint8]) -> None:
        """Add new tags of ``rows`` whose CRC is right."""
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

    def _id(self, tag: str) -> int:
        return self._numbers.id(tag) if self._numbers.wanted.kind(SCALAR) else -1


def _text(tag: bytes) -> str:
    return tag.decode(errors="backslashreplace")


#: Fewer records of one length are decoded one by one.
FEW_ROWS = 24

_MOST_LAYOUTS = 32
_MOST_MISSES = 4


class RowDecoders:
    """Decodes records of any length; shared by all runs that are read together.

    Attributes:
        numbers: The numbers of the tags.
    """

    def __init__(self, numbers: TagNumbers) -> None:
        self.numbers = numbers
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
