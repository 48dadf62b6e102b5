"""Scalars as records, one event each: many of them encoded at once, or one by one.

Records whose tags have one length, and whose steps have one length, are rows of a table. They are
copies of the templates of their tags, in which the varying columns are set for all rows at once.
The CRC of a row is that of its template xor the contributions of the bytes that were set; see
``crc``.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.scalars import read_number, read_numbers
from runhooks.errors import add_note
from runhooks.events.format.crc import contributions, masked
from runhooks.events.format.event import Event, scalar_entry
from runhooks.events.format.record import frame
from runhooks.events.writing.scalar_templates import (
    CHECK_BYTES,
    STEP_AT,
    TIME_AT,
    VALUE_BYTES,
    ScalarTemplates,
)

_LENGTHS = 11  # a step of 64 bits has no digit (if it is 0) up to ten
_FIRST_OF_LENGTH = np.array([1 << 7 * digits for digits in range(10)], np.uint64)

_Bytes = NDArray[np.uint8]
_Index = NDArray[np.intp]


def scalars_record(
    tags: Sequence[str], values: Sequence[Any], step: Any, wall_time: float
) -> bytes:
    """Return the record of one event with the values of all ``tags``, as float32.

    Args:
        tags: One for each value.
        values: Numbers, or arrays of size 1; see ``read_number``.
        step: An integer, or an array that holds one; None: 0.
        wall_time: In seconds since the epoch.

    Raises:
        TypeError: If a tag, a value or the step has the wrong type; a note names the tag.
        ValueError: If a value is not of size 1, or the step has more than 64 bits.
    """
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
        """Return the rows ``at``."""
        return _Columns(
            self.times.take(at, axis=0), self.steps.take(at), self.values.take(at, axis=0)
        )


class ScalarRecords:
    """Encodes many scalars at once, and keeps the templates of their tags."""

    def __init__(self) -> None:
        self._templates = ScalarTemplates()
        # Kept, because allocating memory takes longer than filling it.
        self._scratch = np.empty(0, np.uint8)

    def encode(
        self,
        tags: Sequence[str],
        values: Sequence[Any],
        steps: Sequence[Any],
        wall_times: Sequence[float],
    ) -> memoryview:
        """Return the records of these scalars, in order; each as ``scalars_record`` makes it.

        The memory is reused by the next call. Errors are those of ``scalars_record``, but do not
        say which scalar is at fault; a step that is not an int64 raises OverflowError or TypeError.
        """
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
        """Return one record for each of ``rows`` of the templates of ``group``: ``[n, length]``."""
        shape, digits = divmod(group, _LENGTHS)
        templates = self._templates.templates(shape, digits)
        length = templates.records.shape[1]
        end = length - CHECK_BYTES
        records = templates.records.view(f"V{length}").ravel().take(rows)
        records = records.view(np.uint8).reshape(-1, length)
        crcs = templates.crcs.take(rows)
        for at, content in (
            (TIME_AT, columns.times),
            (STEP_AT, _varints(columns.steps, digits)),
            (end - VALUE_BYTES, columns.values),
        ):
            records[:, at : at + content.shape[1]] = content
            for column in range(content.shape[1]):
                crcs ^= contributions(end - 1 - at - column).take(content[:, column])
        records[:, end:] = _as_bytes(masked(crcs).astype("<u4"))
        return records

    def _in_order(self, parts: Sequence[tuple[_Index, _Bytes]], count: int) -> memoryview:
        """Return all rows of ``parts``, pairs of indices and rows, in the order of the indices."""
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
            # One element for each place at which a row may begin: they overlap.
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
    """Return ``steps``, of ``length`` digits each, in base 128: ``[n, length]``."""
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
