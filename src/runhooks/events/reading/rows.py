"""Scalars by the thousand: records of one format as rows, and columns of each tag.

Records of one format differ in time, step, values and, if they have only one, in the letters of its
tag, but in no length.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.record import HEADER_BYTES, check_of, contributions, crc32c, masked
from runhooks.events.reading.messages import (
    SCALAR,
    SIMPLE_VALUE,
    Metadata,
    ParsedEvent,
    ParsedValue,
    TagMetadata,
    Wanted,
    parse_event,
    text_of,
)
from runhooks.events.reading.results import Scalars
from runhooks.events.reading.values import parse_tensor

#: Fewer records of one length are decoded one by one.
FEW_ROWS = 24

_FLOATS = {1: "<f4", 2: "<f8"}
_MOST_FORMATS = 32
_MOST_MISSES = 4


class ScalarRows(NamedTuple):
    """The scalars of some records, ``k`` of each.

    ``ids``, of the tags, and ``values`` are ``[n, k]``; the others ``[n]``.
    """

    records: NDArray[np.int64]
    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    values: NDArray[np.float64]


class RowDecoders:
    """Decodes records of all runs that are read together."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._formats: defaultdict[int, list[RowFormat]] = defaultdict(list)

    def decode(
        self,
        index: NDArray[np.int64],
        rows: NDArray[np.uint8],
        length: int,
        metadata: TagMetadata,
    ) -> tuple[list[ScalarRows], NDArray[np.int64]]:
        """Return the scalars, and which of the records ``index`` to decode one by one.

        ``length``: bytes of payload each.
        """
        formats = self._formats[length]
        found: list[ScalarRows] = []
        left: list[NDArray[np.int64]] = []
        known, misses = iter(tuple(formats)), 0
        while len(index) >= FEW_ROWS and misses < _MOST_MISSES:
            row_format = next(known, None)
            is_new = row_format is None
            if row_format is None:
                row_format = self._learnt(rows[0], length, metadata)
            if row_format is None:
                misses += 1
                left.append(index[:1])
                index, rows = index[1:], rows[1:]
                continue
            matched = row_format.matches(rows)
            misses += int(is_new and np.count_nonzero(matched) < FEW_ROWS)
            if not matched.any():
                continue
            if not is_new:
                formats.remove(row_format)
            formats.insert(0, row_format)
            if matched.all():
                matching, index, rows = (index, rows), index[:0], rows[:0]
            else:
                matching = index[matched], rows[matched]
                index, rows = index[~matched], rows[~matched]
            scalars, unread = row_format.read(*matching, metadata)
            found.append(scalars)
            left.append(unread)
        del formats[_MOST_FORMATS:]
        return found, np.concatenate([*left, index])

    def _learnt(
        self, row: NDArray[np.uint8], length: int, metadata: TagMetadata
    ) -> RowFormat | None:
        payload = row[HEADER_BYTES : HEADER_BYTES + length].tobytes()
        check = row[HEADER_BYTES + length : HEADER_BYTES + length + 4].tobytes()
        if check_of(payload) != check:
            return None
        try:
            event = parse_event(payload)
            fields = [_scalar_field(payload, value, metadata) for value in event.values]
        except ValueError:  # malformed; decoding it alone says why
            return None
        scalars = [field for field in fields if field is not None]
        if not scalars or len(scalars) < len(fields):
            return None
        return RowFormat(payload, event, scalars, self.wanted)


class ScalarField(NamedTuple):
    tag: str
    tag_at: tuple[int, int]
    number_at: int
    dtype: str
    metadata: Metadata | None


def _scalar_field(payload: bytes, value: ParsedValue, metadata: TagMetadata) -> ScalarField | None:
    """Return the floating-point scalar that ``value`` is; else None."""
    tag, said, kind = metadata.identify(payload, value)
    if value.content is None or kind != SCALAR:
        return None
    tag_at = (value.tag.begin, value.tag.end) if value.tag else (0, 0)
    sent = said if value.metadata else None
    if value.content.number == SIMPLE_VALUE:
        return ScalarField(tag, tag_at, value.content.begin, "<f4", sent)
    tensor = parse_tensor(payload, value.content.begin, value.content.end)
    number = tensor.content or (tensor.numbers[0] if len(tensor.numbers) == 1 else None)
    dtype = _FLOATS.get(tensor.dtype)
    if sent is None or dtype is None or number is None or any(size != 1 for size in tensor.shape):
        return None
    is_one = number.end - number.begin == np.dtype(dtype).itemsize
    return ScalarField(tag, tag_at, number.begin, dtype, sent) if is_one else None


class RowFormat:
    """The places of what varies in payloads like ``payload``."""

    def __init__(
        self, payload: bytes, event: ParsedEvent, scalars: list[ScalarField], wanted: Wanted
    ) -> None:
        self._length = len(payload)
        self._wanted = wanted
        self._time = event.wall_time.begin if event.wall_time else None
        self._step = range(event.step.begin, event.step.end) if event.step else range(0)
        self._varying = [
            scalar.number_at + at
            for scalar in scalars
            for at in range(np.dtype(scalar.dtype).itemsize)
        ]
        if self._time is not None:
            self._varying += range(self._time, self._time + 8)
        mask = np.full(self._length, 0xFF, np.uint8)
        mask[self._varying] = 0
        mask[self._step] = 0x80  # the bit that says whether another digit follows
        self._varying += self._step
        constant = bytearray(payload)
        for at in self._varying:
            constant[at] = 0
        self._tag = range(*scalars[0].tag_at) if len(scalars) == 1 else range(0)
        self._tags: _Tags | None = None
        if len(scalars) == 1:
            mask[self._tag] = 0
            constant[self._tag.start : self._tag.stop] = bytes(len(self._tag))
            self._tags = _Tags(HEADER_BYTES + self._tag.start, HEADER_BYTES + self._tag.stop)
            self._scalars = scalars
        else:
            ids = [wanted.id(SCALAR, scalar.tag) for scalar in scalars]
            self._scalars = [scalar for scalar, i in zip(scalars, ids, strict=True) if i >= 0]
            self._ids = np.array([i for i in ids if i >= 0], np.int32)
        self._crc = np.uint32(crc32c(bytes(constant)))
        self._mask = _as_words(mask)
        self._template = _as_words(np.frombuffer(payload, np.uint8)) & self._mask

    def matches(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        words = rows.view(np.uint64)
        wrong = np.zeros(len(rows), np.uint64)
        for at in np.flatnonzero(self._mask).tolist():
            wrong |= words[:, at] & self._mask[at] ^ self._template[at]
        right: NDArray[np.bool_] = wrong == 0
        return right

    def read(
        self, index: NDArray[np.int64], rows: NDArray[np.uint8], metadata: TagMetadata
    ) -> tuple[ScalarRows, NDArray[np.int64]]:
        """Return the wanted scalars, and the records whose CRC seems to be wrong."""
        if self._tags is None:
            ids = np.broadcast_to(self._ids, (len(rows), len(self._ids)))
            right = wanted = self._verified(rows, self._crc)
        else:
            hashes = self._tags.hashes(rows)
            slots, known = self._tags.slots(hashes)
            if not known.all():
                self._add(self._tags, rows[~known], hashes[~known])
                slots, known = self._tags.slots(hashes)
            ids = self._tags.ids.take(slots)[:, None]
            right = known & self._verified(rows, self._tags.crcs.take(slots))
            wanted = right & (ids[:, 0] >= 0)
        unread = index[~right]
        if not wanted.all():
            index, rows, ids = index[wanted], rows[wanted], ids[wanted]
        for place, scalar in enumerate(self._scalars):
            if scalar.metadata is not None:
                names = (self._wanted.names[i] for i in np.unique(ids[:, place]))
                metadata.add(names, scalar.metadata)
        values = np.empty(ids.shape)
        for place, scalar in enumerate(self._scalars):
            values[:, place] = _column(rows, scalar.number_at, scalar.dtype)
        times = np.zeros(len(rows)) if self._time is None else _column(rows, self._time, "<f8")
        scalars = ScalarRows(index, ids, self._steps(rows), times.astype(np.float64), values)
        return scalars, unread

    def _add(self, tags: _Tags, rows: NDArray[np.uint8], hashes: NDArray[np.uint64]) -> None:
        """Add the tags of ``rows``, unless the first row of a tag is damaged."""
        first = np.sort(np.unique(hashes, return_index=True)[1])
        rows, hashes = rows[first], hashes[first]
        crcs = np.full(len(rows), self._crc)
        for at in self._tag:
            crcs ^= self._contribution(rows, at)
        right = self._verified(rows, crcs)
        place = slice(HEADER_BYTES + self._tag.start, HEADER_BYTES + self._tag.stop)
        names = [text_of(row.tobytes()) for row in rows[right, place]]
        ids = np.array([self._wanted.id(SCALAR, name) for name in names], np.int32)
        tags.add(hashes[right], ids, crcs[right])

    def _verified(
        self, rows: NDArray[np.uint8], constant: NDArray[np.uint32] | np.uint32
    ) -> NDArray[np.bool_]:
        """Return which payloads have the right CRC: ``[n]``.

        ``constant``: the CRC of the bytes that vary with the tag alone, for each row or for all.
        """
        crcs = np.zeros(len(rows), np.uint32) ^ constant
        for at in self._varying:
            crcs ^= self._contribution(rows, at)
        right: NDArray[np.bool_] = masked(crcs) == _column(rows, self._length, "<u4")
        return right

    def _contribution(self, rows: NDArray[np.uint8], at: int) -> NDArray[np.uint32]:
        return contributions(self._length - 1 - at).take(rows[:, HEADER_BYTES + at], mode="wrap")

    def _steps(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        steps = np.zeros(len(rows), np.uint64)
        for place, at in enumerate(self._step):
            steps |= (rows[:, HEADER_BYTES + at] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        return steps.view(np.int64)


def _as_words(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    words = np.zeros(-(-(HEADER_BYTES + len(content) + 4) // 8), np.uint64)
    words.view(np.uint8)[HEADER_BYTES : HEADER_BYTES + len(content)] = content
    return words


def _column(rows: NDArray[np.uint8], at: int, dtype: str) -> NDArray[Any]:
    """Return a view of the numbers at byte ``at`` of the payloads: ``[n]``."""
    begin = HEADER_BYTES + at
    return rows[:, begin : begin + np.dtype(dtype).itemsize].view(dtype)[:, 0]


_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_LAST = np.iinfo(np.uint64).max


class _Tags:
    """The tags at bytes ``[begin:end]`` of rows, found by the hash of their words of eight bytes.

    Of two tags with one hash the second has the CRC of the first, so it is decoded one by one.
    ``ids`` and ``crcs`` are by slot; at the end, -1 and 0.
    """

    def __init__(self, begin: int, end: int) -> None:
        words = range(begin // 8, -(-end // 8)) if end > begin else range(0)
        mask = np.zeros(8 * words.stop, np.uint8)
        mask[begin:end] = 0xFF
        self._masks = [(word, mask.view(np.uint64)[word]) for word in words]
        self._hashes = np.array([_LAST], np.uint64)
        self.ids = np.array([-1], np.int32)
        self.crcs = np.zeros(1, np.uint32)

    def hashes(self, rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
        hashes = np.zeros(len(rows), np.uint64)
        words = rows.view(np.uint64)
        for at, mask in self._masks:
            hashes ^= words[:, at] & mask
            hashes *= _FACTOR
            hashes ^= hashes >> _FOLD
        return hashes * _FACTOR

    def slots(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the slots, and which of them are known."""
        slots = np.searchsorted(self._hashes, hashes)
        return slots, self._hashes.take(slots) == hashes

    def add(
        self, hashes: NDArray[np.uint64], ids: NDArray[np.int32], crcs: NDArray[np.uint32]
    ) -> None:
        """Add new tags; all slots change."""
        hashes = np.concatenate([hashes, self._hashes])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self.ids = np.concatenate([ids, self.ids])[order]
        self.crcs = np.concatenate([crcs, self.crcs])[order]


_TOGETHER = 1 << 12
_TYPES = (np.int64, np.int32, np.int64, np.float64, np.float64)


# Record, number of the tag, step, value, wall time.
SingleScalar: TypeAlias = tuple[int, int, int, float, float]


class ScalarColumns(NamedTuple):
    """Scalars in order. ``first``: the index of the first one of each record, and of the end."""

    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]
    first: NDArray[np.int64]


def in_order(records: int, found: list[ScalarRows], singles: list[SingleScalar]) -> ScalarColumns:
    """Return all scalars of a block in the order of its records; ``singles`` are in order.

    ``records``: how many there are.
    """
    columns = zip(*singles, strict=True) if singles else ((),) * len(_TYPES)
    single, *of_singles = map(np.array, columns, _TYPES)
    counts = np.zeros(records + 1, np.int64)
    counts[1:] = np.bincount(single, minlength=records)
    for rows in found:
        counts[rows.records + 1] = rows.ids.shape[1]
    first = counts.cumsum()
    total = int(first[-1])
    ids, steps = np.empty(total, np.int32), np.empty(total, np.int64)
    values, wall_times = np.empty(total), np.empty(total)
    at = first[single] + np.arange(len(single)) - np.searchsorted(single, single)
    ids[at], steps[at], values[at], wall_times[at] = of_singles
    for rows in found:
        at = first[rows.records][:, None] + np.arange(rows.ids.shape[1])
        ids[at], values[at] = rows.ids, rows.values
        steps[at], wall_times[at] = rows.steps[:, None], rows.wall_times[:, None]
    return ScalarColumns(ids, steps, values, wall_times, first)


class ScalarStore:
    """The scalars of all tags, with ``names`` by number, merged when they are asked for."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._columns: dict[str, Scalars] = {}
        self._ids: list[NDArray[np.int32]] = []
        self._chunks: tuple[list[NDArray[Any]], ...] = ([], [], [])

    def add(self, scalars: ScalarColumns, begin: int, end: int) -> None:
        if begin == end:
            return
        self._ids.append(scalars.ids[begin:end])
        columns = scalars.steps, scalars.values, scalars.wall_times
        for chunks, column in zip(self._chunks, columns, strict=True):
            chunks.append(column[begin:end])

    def columns(self) -> dict[str, Scalars]:
        if self._ids:
            self._merge()
        return self._columns

    def _merge(self) -> None:
        ids = np.concatenate(self._ids)
        self._ids.clear()
        order = _by_number(ids)
        ids = ids[order]
        bounds = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1], [True])))
        tags = [self._names[number] for number in ids[bounds[:-1]].tolist()]
        del ids
        # Small tags share an array; one that somebody keeps does not keep all others.
        shared = bounds.searchsorted(np.arange(0, len(order), _TOGETHER)).tolist()
        cuts = dict.fromkeys([*shared, len(tags)])
        groups = [bounds[begin : end + 1] for begin, end in itertools.pairwise(cuts)]
        merged = zip(*[_of_tags(chunks, order, groups) for chunks in self._chunks], strict=True)
        known = self._columns
        for tag, new in zip(tags, map(Scalars._make, merged), strict=True):
            known[tag] = concatenated([known[tag], new]) if tag in known else new


def concatenated(pieces: list[Scalars]) -> Scalars:
    pieces = [piece for piece in pieces if len(piece.steps)]
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Scalars(np.empty(0, np.int64), np.empty(0), np.empty(0))
    return Scalars._make(map(np.concatenate, zip(*pieces, strict=True)))


def _by_number(ids: NDArray[np.int32]) -> NDArray[np.int64]:
    # NumPy sorts 16 bits by radix.
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    if ids.max() >> 16:
        order = order[np.argsort((ids >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def _of_tags(
    chunks: list[NDArray[Any]], order: NDArray[np.int64], groups: list[NDArray[np.int64]]
) -> list[NDArray[Any]]:
    """Return the column of each tag, and forget its ``chunks``: one at a time is in memory twice.

    ``groups``: the bounds in ``order`` of tags that share an array.
    """
    column = np.concatenate(chunks)
    chunks.clear()
    found = []
    for bounds in groups:
        together = column[order[bounds[0] : bounds[-1]]]
        places = (bounds - bounds[0]).tolist()
        found += [together[begin:end] for begin, end in itertools.pairwise(places)]
    return found
