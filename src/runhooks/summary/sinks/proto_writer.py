"""``ProtoWriter``: summaries through the writers that other libraries have for their events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from runhooks import clock
from runhooks.events import Event, Message
from runhooks.summary.graph_def import GraphLike, encode_graph
from runhooks.summary.summary_event import session_log_event, summary_event
from runhooks.summary.summary_writer import SummaryWriter

#: Where a writer keeps the one that it writes with.
_INNER = ("file_writer", "event_writer")


class ProtoWriter(SummaryWriter):
    """Writes with ``writer``: ``SummaryWriter`` of PyTorch or tensorboardX, or a ``FileWriter``.

    That is one of TensorFlow, PyTorch or tensorboardX, or an ``EventFileWriter`` of TensorBoard.
    ``event_class``: its ``Event``, see ``event_class_of``. As with ``writer`` itself, arrays are
    read before a call returns, and the queue, the thread and the faults are those of ``writer``.
    """

    def __init__(self, writer: Any, event_class: Any) -> None:
        self._writer = writer
        self._event_class = event_class

    @property
    def closed(self) -> bool:
        """Whether it is closed, as far as ``writer`` says so."""
        return _chain(self._writer)[-1] is None

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._add(summary_event(summary, global_step))

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        self._add(session_log_event(session_log, global_step))

    def graph(self, graph: GraphLike) -> None:
        self._add(Event(clock.wall(), graph_def=encode_graph(graph)))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add(self, event: Event) -> None:
        innermost = _chain(self._writer)[-1]
        if innermost is None:
            raise RuntimeError(f"the summary writer {self._writer!r} is closed: make a new one")
        # The outer ones would give the event a time of their own.
        innermost.add_event(self._event_class.FromString(event.SerializeToString()))


def event_class_of(writer: Any) -> Any:
    """Return the class of the events that ``writer`` writes; None if it takes no such events.

    Each library has an ``Event`` of its own, and takes no other: that in ``event_pb2`` where its
    writers are defined.
    """
    innermost = _chain(writer)[-1]
    if innermost is not None and not hasattr(innermost, "add_event"):
        return None
    return next((module.event_pb2.Event for module in _modules(writer)), None)


def _chain(writer: Any) -> list[Any]:
    """Return ``writer``, the one it writes with, and so on; None in place of one that is closed."""
    chain = [writer]
    for name in _INNER:
        if hasattr(chain[-1], name):
            chain.append(getattr(chain[-1], name))
    return chain


def _modules(writer: Any) -> Iterator[Any]:
    for link in _chain(writer):
        for base in type(link).__mro__:
            module = sys.modules.get(base.__module__)
            if hasattr(module, "event_pb2"):
                yield module
