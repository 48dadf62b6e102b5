"""``Event``: one record of an event file, and what it may say of the session that wrote it.

Field numbers are those of TensorFlow's ``event.proto``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from runhooks.events import wire
from runhooks.events.fields import int_field, text_field

#: What the first event of a file says of its format.
FILE_VERSION = "brain.Event:2"


class Message(Protocol):
    """What has bytes of its own: a message of ours, or any Protocol Buffers message."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the message in the wire format."""
        ...


class SessionStatus(IntEnum):
    """What became of a session."""

    STATUS_UNSPECIFIED = 0
    START = 1
    STOP = 2
    CHECKPOINT = 3


class SessionLog(NamedTuple):
    """A note on the life of the session.

    ``START`` at step n makes readers drop what earlier sessions wrote from step n on.
    """

    status: int = SessionStatus.STATUS_UNSPECIFIED
    checkpoint_path: str = ""
    msg: str = ""

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the message in the wire format."""
        about = text_field(2, self.checkpoint_path) + text_field(3, self.msg)
        return int_field(1, self.status) + about

    @classmethod
    def FromString(cls, message: bytes) -> SessionLog:  # noqa: N802 (Protocol Buffers\' name)
        """Return the session log that ``message`` holds; ValueError if it holds none."""
        values = dict(wire.fields(message))
        return cls(
            SessionStatus(wire.as_int(values.get(1, 0))),
            wire.as_bytes(values.get(2, b"")).decode(),
            wire.as_bytes(values.get(3, b"")).decode(),
        )


class Event(NamedTuple):
    """One record of an event file: when, at which step, and one of the other fields.

    ``wall_time`` is in seconds since the epoch. What may be bytes or a message is either: bytes in
    the wire format, or a message that is asked for them when the event is written, not before. An
    event that was read holds bytes.
    """

    wall_time: float
    step: int = 0
    summary: bytes | Message | None = None
    session_log: bytes | Message | None = None
    graph_def: bytes | Message | None = None
    tagged_run_metadata: bytes | Message | None = None
    file_version: str | None = None

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the event in the wire format. Raises what a message in it raises."""
        parts = [wire.double_field(1, self.wall_time), int_field(2, self.step)]
        if self.file_version is not None:
            parts.append(wire.bytes_field(3, self.file_version.encode()))
        for number, message in (
            (4, self.graph_def),
            (5, self.summary),
            (7, self.session_log),
            (8, self.tagged_run_metadata),
        ):
            if message is not None:
                parts.append(wire.bytes_field(number, _serialized(message)))
        return b"".join(parts)

    @classmethod
    def FromString(cls, message: bytes) -> Event:  # noqa: N802 (Protocol Buffers\' name)
        """Return the event that ``message`` holds; ValueError if it holds none."""
        values = dict(wire.fields(message))

        def content(number: int) -> bytes | None:
            return wire.as_bytes(values[number]) if number in values else None

        version = content(3)
        return cls(
            wall_time=wire.as_float(values[1]) if 1 in values else 0.0,
            step=wire.as_int(values.get(2, 0)),
            summary=content(5),
            session_log=content(7),
            graph_def=content(4),
            tagged_run_metadata=content(8),
            file_version=None if version is None else version.decode(),
        )


def _serialized(message: bytes | Message) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()
