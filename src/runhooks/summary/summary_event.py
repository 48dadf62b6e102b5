"""What a writer of summaries is given, as events of this moment."""

from __future__ import annotations

from typing import Any

from runhooks import clock
from runhooks.events import Event, Message
from runhooks.summary.message import Summary


def summary_event(summary: bytes | Message, global_step: int | None) -> Event:
    """Return an event that holds ``summary``, which is not looked into.

    Raises TypeError if it is neither bytes nor a message.
    """
    if not isinstance(summary, bytes) and not hasattr(summary, "SerializeToString"):
        raise TypeError(
            f"summary must be a Summary, a message or bytes, got {summary!r}; "
            "Summary([scalar_value(tag, number)]) makes one"
        )
    return Event(clock.wall(), int(global_step or 0), summary)


def session_log_event(session_log: Any, global_step: int | None) -> Event:
    """Return an event that holds ``session_log``, one of ours or of Protocol Buffers."""
    return Event(clock.wall(), int(global_step or 0), session_log=session_log)


def nbytes_of(data: Any) -> int:
    """Return about how many bytes ``data`` keeps in memory: it is, or holds, arrays or bytes."""
    if isinstance(data, bytes):
        return len(data)
    if isinstance(data, Summary):
        return sum(nbytes_of(value.data) for value in data)
    if isinstance(data, list | tuple):
        return sum(map(nbytes_of, data))
    nbytes: int = data.ByteSize() if hasattr(data, "ByteSize") else getattr(data, "nbytes", 0)
    return nbytes
