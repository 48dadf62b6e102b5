"""``Summary``: what is written of one step, as a sequence of tagged values.

Field numbers are those of TensorFlow's ``summary.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

from runhooks.events import wire
from runhooks.events.scalar_values import scalar_entry

_VALUE = 1
_TAG = 1
_SIMPLE_VALUE = 2


class Value(NamedTuple):
    """Something to be written under ``tag``; ``encode(tag, data)`` makes its bytes.

    ``data`` is whatever that function reads: it is not looked at before, so it may be an array
    that a device has yet to compute. The bytes are those of one or more entries of a summary, as
    ``entry`` makes them. Made by ``scalar_value``, ``histogram_value`` and their kin.
    """

    tag: str
    data: Any
    encode: Callable[[str, Any], bytes]


def entry(tag: str, content: bytes) -> bytes:
    """Return one entry of a summary: ``tag`` and the fields that hold its value."""
    return wire.bytes_field(_VALUE, wire.bytes_field(_TAG, tag.encode()) + content)


class Summary(Sequence[Value]):
    """An immutable sequence of values; ``Summary.merge`` puts several together."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._values = tuple(values)

    @classmethod
    def merge(cls, summaries: Iterable[Summary]) -> Summary:
        """Return the values of all ``summaries``, in order."""
        return cls(value for summary in summaries for value in summary)

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the message in the wire format; this reads the data of the values.

        Raises what reading them raises, with a note that names the tag.
        """
        return b"".join(map(_encoded, self._values))

    @classmethod
    def FromString(cls, message: bytes) -> Summary:  # noqa: N802 (Protocol Buffers\' name)
        """Return the summary that ``message`` holds.

        The data of a scalar is a float, that of any other value its bytes.

        Raises ValueError if ``message`` holds no summary.
        """
        return cls(_parsed(field) for field in wire.fields(message))

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Summary: ...
    def __getitem__(self, index: int | slice) -> Value | Summary:
        if isinstance(index, slice):
            return Summary(self._values[index])
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Summary of {[value.tag for value in self._values]}"


def _encoded(value: Value) -> bytes:
    try:
        return value.encode(value.tag, value.data)
    except BaseException as error:
        error.add_note(f"while encoding the summary {value.tag!r}")
        raise


def _parsed(field: wire.Field) -> Value:
    if field.number != _VALUE:
        raise ValueError(f"a summary consists of fields of number 1, got one of {field.number}")
    message = wire.as_bytes(field.value)
    fields = dict(wire.fields(message))
    tag = wire.as_bytes(fields.get(_TAG, b"")).decode()
    if _SIMPLE_VALUE in fields:
        return Value(tag, wire.as_float(fields[_SIMPLE_VALUE]), scalar_entry)
    return Value(tag, message, _encode_parsed)


def _encode_parsed(tag: str, message: bytes) -> bytes:
    return wire.bytes_field(_VALUE, message)
