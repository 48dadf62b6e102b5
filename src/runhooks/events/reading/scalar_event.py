"""``ScalarEvents``: the scalars of single events, a value at a time.

Nearly all writers put the fields of an event in the same order, and after the tag of each scalar
the same few bytes with the number between them. Such an event is read without locating its fields.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from runhooks.events.format.fields import signed, varint_at
from runhooks.events.reading.layout import ScalarField
from runhooks.events.reading.metadata import Metadata
from runhooks.events.reading.parsed_event import ParsedValue

_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A  # the keys of the fields of an event
_VALUE = _TAG = 0x0A  # of a summary, of a value
_NUMBER = 0x15
_AFTER_TIME = 9
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_LONGEST = 256  # bytes of a form


class ScalarForm(NamedTuple):
    """What follows a tag: ``before``, a number, ``after``; and the metadata in these bytes."""

    before: bytes
    number: struct.Struct
    after: bytes
    metadata: Metadata | None


#: One scalar of an event: its tag, its number, and the metadata of the tag if they are with it.
ReadScalar: TypeAlias = tuple[bytes, float, Metadata | None]


class ReadEvent(NamedTuple):
    """An event of scalars alone. ``wall_time``: seconds since the epoch."""

    wall_time: float
    step: int
    scalars: list[ReadScalar]


class ScalarEvents:
    """Reads events of scalars in forms that were learnt; a plain float is known."""

    def __init__(self) -> None:
        plain = ScalarForm(bytes([_NUMBER]), _FLOAT, b"", None)
        self._forms = {len(plain.before) + _FLOAT.size: plain}  # by their lengths

    def learn(self, message: bytes, value: ParsedValue, scalar: ScalarField) -> None:
        """Keep the form of ``value``, which is in ``message`` and contains ``scalar``."""
        (_, begin), (first, last), end = scalar.tag_at, scalar.number_at, value.end
        # Metadata before the tag is not part of the form.
        is_after = value.metadata is None or value.metadata.begin > begin
        if scalar.is_plain and is_after and first > begin > 0 and end - begin <= _LONGEST:
            number = _FLOAT if last - first == _FLOAT.size else _DOUBLE
            form = ScalarForm(message[begin:first], number, message[last:end], scalar.metadata)
            self._forms[end - begin] = form

    def read(self, message: bytes) -> ReadEvent | None:
        """Return what is in ``message``; None if it has another form, or is malformed."""
        try:
            return self._read(message)
        except (IndexError, ValueError, struct.error):  # it is cut off
            return None

    def _read(self, message: bytes) -> ReadEvent | None:
        end = len(message)
        (wall_time,) = _DOUBLE.unpack_from(message, 1)
        at, step = _AFTER_TIME, 0
        if message[at] == _STEP:
            step, at = varint_at(message, at + 1, end)
        if message[0] != _TIME or message[at] != _SUMMARY:
            return None
        length, at = varint_at(message, at + 1, end)
        scalars: list[ReadScalar] = []
        if at + length != end:
            return None
        while at < end:
            if message[at] != _VALUE:
                return None
            length, first = varint_at(message, at + 1, end)
            at = first + length
            scalar = self._scalar(message, first, at)
            if scalar is None:
                return None
            scalars.append(scalar)
        return ReadEvent(wall_time, signed(step), scalars)

    def _scalar(self, message: bytes, at: int, end: int) -> ReadScalar | None:
        length, first = varint_at(message, at + 1, end)
        last = first + length
        form = self._forms.get(end - last)
        if form is None or message[at] != _TAG or not message.startswith(form.before, last):
            return None
        place = last + len(form.before)
        if not message.startswith(form.after, place + form.number.size):
            return None
        (number,) = form.number.unpack_from(message, place)
        return message[first:last], number, form.metadata
