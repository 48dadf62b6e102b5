"""``adapted``: a ``SummaryWriter`` of ours that writes with whatever writer a user has."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from runhooks.events import Message
from runhooks.summary.sinks.proto_writer import ProtoWriter, event_class_of
from runhooks.summary.summary_writer import SummaryWriter


class TakesSummaries(Protocol):
    """A writer of a user's own; ``add_session_log``, ``flush``, ``close`` are called if present."""

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add ``summary``, a ``Summary``, at ``global_step``."""
        ...


class WritesWithAnother(Protocol):
    """A ``SummaryWriter`` of PyTorch or of tensorboardX."""

    file_writer: Any

    def flush(self) -> None:
        """Have what was added written."""
        ...


#: What can be given as a ``summary_writer``.
AnyWriter = TakesSummaries | WritesWithAnother


def adapted(writer: AnyWriter) -> SummaryWriter:
    """Return a ``SummaryWriter`` that writes with ``writer``, or ``writer`` if it is one.

    ``writer``: anything with ``add_summary``; or a ``SummaryWriter`` of PyTorch or tensorboardX;
    or a ``FileWriter`` of TensorFlow, or an ``EventFileWriter`` of TensorBoard.

    Raises TypeError for anything else.
    """
    if isinstance(writer, SummaryWriter):
        return writer
    add_summary = getattr(writer, "add_summary", None)
    event_class = event_class_of(writer)
    # Someone's own add_summary takes our summaries, whatever it then writes with.
    if event_class is not None and (add_summary is None or _takes_protos(add_summary)):
        return ProtoWriter(writer, event_class)
    if add_summary is None:
        raise TypeError(
            "summary_writer must have add_summary(summary, step), or be a SummaryWriter of PyTorch "
            f"or tensorboardX, got {writer!r}"
        )
    return _Adapter(writer)


def _takes_protos(add_summary: Any) -> bool:
    module = sys.modules.get(getattr(add_summary, "__module__", None) or "")
    return hasattr(module, "event_pb2")


class _Adapter(SummaryWriter):
    """A writer of a user's own, whatever it has beside ``add_summary``."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    @property
    def closed(self) -> bool:
        return bool(getattr(self._writer, "closed", False))

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._writer.add_summary(summary, global_step)

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        self._call("add_session_log", session_log, global_step)

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str, *arguments: Any) -> None:
        method = getattr(self._writer, name, None)
        if method is not None:
            method(*arguments)
