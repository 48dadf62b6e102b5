"""What a writer of summaries is given, as events of this moment."""

from __future__ import annotations

from typing import Any

from runhooks import clock
from runhooks.events import Event, Message
from runhooks.summary.address import global_step
from runhooks.summary.message import Summary


def summary_event(summary: bytes | Message, step: int | None) -> Event:
    """Return an event that holds ``summary``, which is not looked into.

    Raises TypeError if it is neither bytes nor a message, and what ``global_step`` raises.
    """
    if not isinstance(summary, bytes) and not hasattr(summary, "SerializeToString"):
        raise TypeError(
            f"summary must be a Summary, a message or bytes, got {summary!r}; "
            "Summary([scalar_value(tag, number)]) makes one"
        )
    at = global_step(step, summary if isinstance(summary, Summary) else "the summary")
    return Event(clock.wall(), at, _Encoded(summary) if isinstance(summary, bytes) else summary)


class _Encoded:
    """A summary that came as bytes, which are looked at when it is written."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the bytes. Raises ValueError if they are no summary."""
        try:
            Summary.FromString(self._content)
        except ValueError as error:
            raise ValueError(
                f"summary must be the bytes of a Summary, got {self._content[:20]!r}: {error}"
            ) from None
        return self._content


def session_log_event(session_log: Any, step: int | None) -> Event:
    """Return an event that holds ``session_log``, one of ours or of Protocol Buffers.

    Raises TypeError if it is neither, and what ``global_step`` raises.
    """
    if not hasattr(session_log, "status") or not hasattr(session_log, "SerializeToString"):
        raise TypeError(f"session_log must be a SessionLog, got {session_log!r}")
    at = global_step(step, "the session log")
    return Event(clock.wall(), at, session_log=session_log)


def nbytes_of(data: Any) -> int:
    """Return about how many bytes ``data`` keeps in memory: it is, or holds, arrays or bytes."""
    if isinstance(data, bytes):
        return len(data)
    if isinstance(data, Summary):
        return sum(nbytes_of(value.data) for value in data)
    if isinstance(data, list | tuple):
        return sum(map(nbytes_of, data))
    try:
        nbytes: int = data.ByteSize() if hasattr(data, "ByteSize") else getattr(data, "nbytes", 0)
    except RuntimeError:  # PyTorch does not say it of sparse tensors
        nbytes = 0
    return nbytes
