"""``Event`` and ``SessionLog``. Format: TensorFlow's ``event.proto``."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from runhooks.events.format import proto
from runhooks.events.format.proto import as_bytes, as_float, as_int, fields, int_field, text_field

FILE_VERSION = "brain.Event:2"

_MESSAGES = {
    "graph_def": 4,
    "summary": 5,
    "session_log": 7,
    "tagged_run_metadata": 8,
    "meta_graph_def": 9,
}
_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2  # of summary.proto


class Message(Protocol):
    """Anything that serializes itself: our messages, and those of Protocol Buffers."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        """Return the message in the wire format."""


class SessionStatus(IntEnum):
    """An event in the life of a session."""

    STATUS_UNSPECIFIED = 0
    START = 1
    STOP = 2
    CHECKPOINT = 3


class SessionLog(NamedTuple):
    """An entry on the life of a session, for ``FileWriter.add_session_log``.

    ``checkpoint_path``: what was saved or restored.
    """

    status: int = SessionStatus.STATUS_UNSPECIFIED
    checkpoint_path: str = ""
    msg: str = ""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the message in the wire format."""
        about = text_field(2, self.checkpoint_path) + text_field(3, self.msg)
        return int_field(1, self.status) + about

    @classmethod
    def FromString(cls, message: bytes) -> SessionLog:  # noqa: N802
        """Return the session log in ``message``. Raises ValueError if it is malformed."""
        values = dict(fields(message))
        return cls(
            SessionStatus(as_int(values.get(1, 0))),
            as_bytes(values.get(2, b"")).decode(),
            as_bytes(values.get(3, b"")).decode(),
        )


class Event(NamedTuple):
    """One record of an event file: a time in seconds since the epoch, a step, and one other field.

    A message that is not bytes is serialized when the event is written. An event that was read
    holds bytes.
    """

    wall_time: float
    step: int = 0
    summary: bytes | Message | None = None
    session_log: bytes | Message | None = None
    graph_def: bytes | Message | None = None
    tagged_run_metadata: bytes | Message | None = None
    file_version: str | None = None
    meta_graph_def: bytes | Message | None = None

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the event in the wire format. Raises what a message in it does."""
        parts = [proto.double_field(1, self.wall_time), int_field(2, self.step)]
        if self.file_version is not None:
            parts.append(proto.bytes_field(3, self.file_version.encode()))
        for name, number in _MESSAGES.items():
            message = getattr(self, name)
            if message is not None:
                content = message if isinstance(message, bytes) else message.SerializeToString()
                parts.append(proto.bytes_field(number, content))
        return b"".join(parts)

    @classmethod
    def FromString(cls, message: bytes) -> Event:  # noqa: N802
        """Return the event in ``message``. Raises ValueError if it is malformed."""
        values = dict(fields(message))
        return cls(
            wall_time=as_float(values[1]) if 1 in values else 0.0,
            step=as_int(values.get(2, 0)),
            file_version=as_bytes(values[3]).decode() if 3 in values else None,
            **{name: as_bytes(values[i]) for name, i in _MESSAGES.items() if i in values},
        )


def scalar_entry(tag: str, number: float) -> bytes:
    """Return the value of a Summary, whose last 4 bytes are ``number``."""
    content = proto.bytes_field(_TAG, tag.encode()) + proto.float_field(_SIMPLE_VALUE, number)
    return proto.bytes_field(_VALUE, content)
