"""Events with the current time, of what a writer of summaries is given."""

from __future__ import annotations

from typing import Any

from runhooks import clock
from runhooks.arrays.registry import library_of
from runhooks.events import Event, Message
from runhooks.summary.message import Summary
from runhooks.summary.tag_and_step import step_or_zero


def summary_event(summary: bytes | Message, step: int | None) -> Event:
    """Return an event that holds ``summary``, whose values are not read.

    Raises:
        TypeError: It is neither bytes nor a message, or ``step`` is not an integer.
        ValueError: The bytes are not a summary, or ``step`` takes more than 64 bits.
    """
    if not isinstance(summary, bytes) and not hasattr(summary, "SerializeToString"):
        raise TypeError(
            f"summary must be a Summary, a message or bytes, got {summary!r}; "
            "Summary([scalar_value(tag, number)]) makes one"
        )
    if isinstance(summary, bytes):
        try:
            Summary.FromString(summary)
        except ValueError as error:
            raise ValueError(
                f"summary must be the bytes of a Summary, got {summary[:20]!r}: {error}"
            ) from None
    at = step_or_zero(step, summary if isinstance(summary, Summary) else "the summary")
    return Event(clock.wall(), at, summary)


def session_log_event(session_log: Any, step: int | None) -> Event:
    """Return an event that holds ``session_log``, ours or one of Protocol Buffers.

    Raises:
        TypeError: It is neither, or ``step`` is not an integer.
        ValueError: ``step`` takes more than 64 bits.
    """
    if not hasattr(session_log, "status") or not hasattr(session_log, "SerializeToString"):
        raise TypeError(f"session_log must be a SessionLog, got {session_log!r}")
    at = step_or_zero(step, "the session log")
    return Event(clock.wall(), at, session_log=session_log)


def nbytes_of(data: Any) -> int:
    """Return about how many bytes of memory ``data`` keeps, with all arrays in it."""
    if isinstance(data, bytes):
        return len(data)
    if isinstance(data, Summary):
        return sum(nbytes_of(value.data) for value in data)
    if isinstance(data, list | tuple):
        return sum(map(nbytes_of, data))
    nbytes: int = data.ByteSize() if hasattr(data, "ByteSize") else library_of(data).nbytes(data)
    return nbytes
