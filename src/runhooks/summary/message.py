"""``Summary``, the values of one step, each with a tag; and the events that hold them.

Field numbers are those of TensorFlow's ``summary.proto``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, overload

from runhooks import clock
from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.errors import add_note
from runhooks.events import Event, Message
from runhooks.events.format import proto
from runhooks.events.format.event import scalar_entry
from runhooks.events.format.proto import (
    Field,
    as_bytes,
    as_float,
    fields,
    int_field,
    text_field,
)


def text_tag(tag: Any) -> str:
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a str, got {tag!r}")
    return tag


def checked_tag(tag: Any) -> str:
    text = text_tag(tag)
    if not text:
        raise ValueError("tag must not be empty, got ''")
    return text


def step_for(tag: Any, step: Any) -> int:
    return checked_step(step, repr(checked_tag(tag)))


def checked_step(step: Any, what: object) -> int:
    """Return ``step``, which may be an array of one integer; waits for a device.

    Raises TypeError or ValueError, which name ``what``.
    """
    try:
        number = operator.index(step)
    except (TypeError, AttributeError):  # the latter by TensorFlow
        number = operator.index(_index(step, what))
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"the step of {what} must fit in 64 bits, got {step!r}")
    return number


def step_or_zero(step: Any, what: object) -> int:
    return 0 if step is None else checked_step(step, what)


def step_snapshot(step: Any, what: object) -> Any:
    """Return ``checked_step``, or an array if a device still computes it."""
    if library_of(step) is NO_LIBRARY:
        return checked_step(step, what)
    index = _index(step, what)
    return checked_step(index, what) if type(index) is int else index


def _index(step: Any, what: object) -> Any:
    try:
        return library_of(step).index(step)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        hint = "give the number of the step" if step is None else "convert it with int(...)"
        raise TypeError(f"the step of {what} must be an integer, got {step!r}: {hint}") from None


_VALUE = 1
_TAG = 1
_SIMPLE_VALUE = 2


class Value(NamedTuple):
    """One value of a summary, as ``scalar_value`` and others make it.

    ``encode(tag, data)`` reads the data, which a device may still compute, and returns entries of a
    summary.
    """

    tag: str
    data: Any
    encode: Callable[[str, Any], bytes]


def entry(tag: str, content: bytes, metadata: Message | bytes | None = None) -> bytes:
    """Return one entry of a summary; ``content`` is the fields that hold its value."""
    content = proto.bytes_field(_TAG, tag.encode()) + content
    if metadata is not None:
        encoded = metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
        content += proto.bytes_field(_METADATA, encoded)
    return proto.bytes_field(_VALUE, content)


def check_fields(message: bytes) -> None:
    """Raise ValueError unless ``message`` is one of Protocol Buffers."""
    for _ in fields(message):
        pass


def serialized(message: Any, rule: str, check: Callable[[bytes], object] = check_fields) -> bytes:
    """Return the bytes of ``message``, or those that it is, if they pass ``check``.

    Raises TypeError or ValueError with ``rule``.
    """
    if not isinstance(message, bytes):
        if not hasattr(message, "SerializeToString"):
            raise TypeError(f"{rule}, got {message!r}")
        encoded: bytes = message.SerializeToString()
        return encoded
    try:
        check(message)
    except ValueError as error:
        raise ValueError(f"{rule}, got {message[:20]!r}: {error}") from None
    return message


class Summary(Sequence[Value]):
    """An immutable sequence of values; ``Summary.merge`` puts several together."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._values = tuple(values)

    @classmethod
    def merge(cls, summaries: Iterable[Summary]) -> Summary:
        """Return the values of all ``summaries``, in order."""
        return cls(value for summary in summaries for value in summary)

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the message in the wire format; waits for the values."""
        return b"".join(map(_encoded, self._values))

    @classmethod
    def FromString(cls, message: bytes) -> Summary:  # noqa: N802
        """Return the summary in ``message``; of all values but scalars, ``data`` is bytes.

        Raises:
            ValueError: ``message`` is not a summary.
        """
        return cls(_parsed(field) for field in fields(message))

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
        add_note(error, f"while encoding the summary {value.tag!r}")
        raise


def _parsed(field: Field) -> Value:
    if field.number != _VALUE:
        raise ValueError(f"a summary consists of fields of number 1, got one of {field.number}")
    message = as_bytes(field.value)
    content = dict(fields(message))
    check_fields(as_bytes(content.get(_METADATA, b"")))
    tag = as_bytes(content.get(_TAG, b"")).decode()
    if _SIMPLE_VALUE in content:
        return Value(tag, as_float(content[_SIMPLE_VALUE]), scalar_entry)
    return Value(tag, message, _encode_parsed)


def _encode_parsed(tag: str, message: bytes) -> bytes:
    return proto.bytes_field(_VALUE, message)


_TENSOR, _METADATA = 8, 9


class DataClass(IntEnum):
    """The kind of data under a tag."""

    DATA_CLASS_UNKNOWN = 0
    DATA_CLASS_SCALAR = 1
    DATA_CLASS_TENSOR = 2
    DATA_CLASS_BLOB_SEQUENCE = 3


class SummaryMetadata(NamedTuple):
    """How TensorBoard shows a value: by which plugin, with what ``content`` for it.

    ``display_name`` stands in place of the tag; ``summary_description`` is Markdown.
    """

    plugin_name: str = ""
    content: bytes = b""
    display_name: str = ""
    summary_description: str = ""
    data_class: int = DataClass.DATA_CLASS_UNKNOWN

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the message in the wire format."""
        plugin = text_field(1, self.plugin_name) + text_field(2, self.content)
        about = text_field(2, self.display_name) + text_field(3, self.summary_description)
        return text_field(1, plugin) + about + int_field(4, self.data_class)


def tensor_entry(tag: str, tensor: bytes, metadata: Message | bytes) -> bytes:
    """Return an entry of a ``TensorProto``."""
    return entry(tag, proto.bytes_field(_TENSOR, tensor), metadata)


class EncodedEvent(NamedTuple):
    wall_time: float
    step: int
    encoded: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self.encoded


def summary_event(summary: bytes | Message, step: int | None) -> Event:
    """Return an event with ``summary`` as it is now; values of ours are not read."""
    what: object = summary
    if not isinstance(summary, Summary):
        rule = (
            "summary must be a Summary, such as Summary([scalar_value(tag, number)]), or a message "
            "or the bytes of a Summary"
        )
        what, summary = "the summary", serialized(summary, rule, Summary.FromString)
    return Event(clock.wall(), step_or_zero(step, what), summary)


def session_log_event(session_log: Any, step: int | None) -> Event:
    if not hasattr(session_log, "status") or not hasattr(session_log, "SerializeToString"):
        raise TypeError(f"session_log must be a SessionLog, got {session_log!r}")
    at = step_or_zero(step, "the session log")
    return Event(clock.wall(), at, session_log=session_log.SerializeToString())


def nbytes_of(data: Any) -> int:
    if data is None or isinstance(data, int):
        return 0
    if isinstance(data, bytes):
        return len(data)
    if isinstance(data, Summary):
        return sum(nbytes_of(value.data) for value in data)
    if isinstance(data, list | tuple):
        return sum(map(nbytes_of, data))
    nbytes: int = data.ByteSize() if hasattr(data, "ByteSize") else library_of(data).nbytes(data)
    return nbytes
