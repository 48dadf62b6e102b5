"""Scalars as records, one event each.

Layout, by the field numbers of TensorFlow's ``event.proto`` and ``summary.proto``:

    12 bytes  header of the record
     1 + 8    wall_time = 1, double
     1 + k    step = 2, varint of k bytes; absent if 0
     1 + ...  summary = 5 {value = 1 {tag = 1, simple_value = 2: float, the last 4 bytes}}
     4 bytes  CRC of the payload

Records with tags of one length and steps of one length are copies of templates, in which varying
columns are set at once, and xored into the CRC by ``contributions``.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.values import read_number, read_numbers
from runhooks.errors import add_note
from runhooks.events.format import proto
from runhooks.events.format.event import Event, scalar_entry
from runhooks.events.format.record import contributions, crc32c, frame, masked

_TIME_AT, _STEP_AT = 13, 22  # the bytes of their content
_VALUE_BYTES, _CHECK_BYTES = 4, 4  # at the end of a record
_STEP = b"\x10"
_MAX_TAGS = 10_000


class Templates(NamedTuple):
    """Records of tags of one length, for steps of one length, with zeros where they vary."""

    records: NDArray[np.uint8]
    crcs: NDArray[np.uint32]


class ScalarTemplates:
    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._places = np.empty((2, 0), np.intp)  # by number
        self._shape_of_length: dict[int, int] = {}
        self._summaries: list[list[bytes]] = []  # by shape; the field of the event, its value zero
        self._made: dict[tuple[int, int], Templates] = {}

    def places(self, tags: Sequence[str]) -> NDArray[np.intp]:
        """Return the shapes of ``tags``, and the rows of their templates: ``[2, n]``."""
        try:
            numbers = np.fromiter(map(self._numbers.__getitem__, tags), np.intp, len(tags))
        except KeyError:
            self._add(tags)
            return self.places(tags)
        return self._places.take(numbers, axis=1)

    def templates(self, shape: int, digits: int) -> Templates:
        """Return the templates of ``shape`` for steps of ``digits`` bytes as a varint."""
        summaries = self._summaries[shape]
        made = self._made.get((shape, digits))
        if made is None or len(made.crcs) < len(summaries):
            step = _STEP + bytes(digits) if digits else b""
            payloads = [proto.double_field(1, 0.0) + step + summary for summary in summaries]
            records = np.frombuffer(b"".join(map(frame, payloads)), np.uint8)
            crcs = np.array([crc32c(payload) for payload in payloads], np.uint32)
            made = Templates(records.reshape(len(payloads), -1), crcs)
            self._made[shape, digits] = made
        return made

    def _add(self, tags: Sequence[str]) -> None:
        if len(self._numbers) > _MAX_TAGS:
            self._forget()
        new = set(tags).difference(self._numbers)
        # Before anything is kept: it may raise.
        summaries = {tag: proto.bytes_field(5, scalar_entry(tag, 0.0)) for tag in new}
        places = []
        for tag, summary in summaries.items():
            shape = self._shape_of_length.setdefault(len(summary), len(self._summaries))
            if shape == len(self._summaries):
                self._summaries.append([])
            self._numbers[tag] = len(self._numbers)
            places.append((shape, len(self._summaries[shape])))
            self._summaries[shape].append(summary)
        self._places = np.append(self._places, np.array(places, np.intp).T, axis=1)


_LENGTHS = 11  # 0 to 10 digits of a 64-bit step
_FIRST_OF_LENGTH = np.array([1 << 7 * digits for digits in range(10)], np.uint64)

_Bytes = NDArray[np.uint8]
_Index = NDArray[np.intp]


def scalars_record(
    tags: Sequence[str], values: Sequence[Any], step: Any, wall_time: float
) -> bytes:
    """Return the record of one event; an error has a note that names the tag."""
    number = 0 if step is None else operator.index(step)
    summary = b"".join(map(_entry, tags, values))
    return frame(Event(wall_time, number, summary).SerializeToString())


def _entry(tag: str, value: Any) -> bytes:
    try:
        if not isinstance(tag, str):
            raise TypeError(f"the tag of a scalar must be a str, got {tag!r}")
        return scalar_entry(tag, read_number(value))
    except BaseException as error:
        add_note(error, f"while encoding the scalar {tag!r}")
        raise


class _Columns(NamedTuple):
    """The bytes that vary: times ``[n, 8]``, steps (not yet encoded) ``[n]``, values ``[n, 4]``."""

    times: _Bytes
    steps: NDArray[np.uint64]
    values: _Bytes

    def take(self, at: _Index) -> _Columns:
        return _Columns._make(column.take(at, axis=0) for column in self)


class ScalarRecords:
    def __init__(self) -> None:
        self._templates = ScalarTemplates()
        # Allocating memory takes longer than filling it.
        self._scratch = np.empty(0, np.uint8)

    def encode(
        self,
        tags: Sequence[str],
        values: Sequence[Any],
        steps: Sequence[Any],
        wall_times: Sequence[float],
    ) -> memoryview:
        """Return the records, in order, in memory that the next call uses again."""
        columns = _Columns(
            _as_bytes(np.array(wall_times, "<f8")),
            np.frombuffer(array("q", steps), np.uint64),
            _as_bytes(_float32(read_numbers(values))),
        )
        shapes, rows = self._templates.places(tags)
        groups = shapes * _LENGTHS + _varint_lengths(columns.steps)
        found = np.flatnonzero(np.bincount(groups)).tolist()
        if len(found) == 1:
            return self._records(found[0], rows, columns).data.cast("B")
        parts = []
        for group in found:
            at = np.flatnonzero(groups == group)
            parts.append((at, self._records(group, rows.take(at), columns.take(at))))
        return self._in_order(parts, len(tags))

    def _records(self, group: int, rows: _Index, columns: _Columns) -> _Bytes:
        shape, digits = divmod(group, _LENGTHS)
        templates = self._templates.templates(shape, digits)
        length = templates.records.shape[1]
        end = length - _CHECK_BYTES
        records = templates.records.view(f"V{length}").ravel().take(rows)
        records = records.view(np.uint8).reshape(-1, length)
        crcs = templates.crcs.take(rows)
        for at, content in (
            (_TIME_AT, columns.times),
            (_STEP_AT, _varints(columns.steps, digits)),
            (end - _VALUE_BYTES, columns.values),
        ):
            records[:, at : at + content.shape[1]] = content
            for column in range(content.shape[1]):
                crcs ^= contributions(end - 1 - at - column).take(content[:, column])
        records[:, end:] = _as_bytes(masked(crcs).astype("<u4"))
        return records

    def _in_order(self, parts: Sequence[tuple[_Index, _Bytes]], count: int) -> memoryview:
        lengths = np.empty(count, np.intp)
        for at, rows in parts:
            lengths[at] = rows.shape[1]
        ends = np.cumsum(lengths)
        size = int(ends[-1])
        if size > len(self._scratch):
            self._scratch = np.empty(size, np.uint8)
        out = self._scratch[:size]
        for at, rows in parts:
            length = rows.shape[1]
            # Overlapping elements, one for each place at which a row may begin.
            places = np.ndarray((size - length + 1,), f"V{length}", buffer=out, strides=(1,))
            places[ends.take(at) - length] = rows.view(f"V{length}").ravel()
        return out.data


def _varint_lengths(steps: NDArray[np.uint64]) -> Any:
    """Return how many bytes each step takes, none if it is 0: ``[n]``, or one number for all."""
    ends = np.searchsorted(_FIRST_OF_LENGTH, (steps.min(), steps.max()), side="right")
    if ends[0] == ends[1]:
        return ends[0]
    return np.searchsorted(_FIRST_OF_LENGTH, steps, side="right")


def _varints(steps: NDArray[np.uint64], length: int) -> _Bytes:
    """Return ``steps`` in base 128: ``[n, length]``."""
    digits = np.empty((len(steps), length), np.uint8)
    for place in range(length):
        digits[:, place] = (steps >> (7 * place)).astype(np.uint8) | 0x80
    digits[:, length - 1 :] &= 0x7F
    return digits


def _float32(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # beyond float32: infinity
        return numbers.astype("<f4")


def _as_bytes(array: NDArray[Any]) -> _Bytes:
    return array.view(np.uint8).reshape(len(array), -1)
