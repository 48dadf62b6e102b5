"""``Layout``: where the scalars are in similar records, learnt from one of them.

Records of one layout differ in the time, in the digits of the step, though not in their number, in
the values, and, if there is only one, in the letters of the tag. So a layout is learnt once, and
thousands of records are then read at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.crc import contributions, crc32c, masked
from runhooks.events.format.fields import LocatedField
from runhooks.events.format.record import HEADER_BYTES
from runhooks.events.reading.metadata import SCALAR, Metadata, kind_of
from runhooks.events.reading.parsed_event import (
    SIMPLE_VALUE,
    ParsedEvent,
    ParsedValue,
    parse_event,
    text_at,
)
from runhooks.events.reading.tag_registry import TagRegistry
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
