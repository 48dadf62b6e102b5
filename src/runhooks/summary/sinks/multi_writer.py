"""``MultiWriter``: several writers as one, those of other libraries among them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from runhooks import clock
from runhooks.errors import call_all
from runhooks.events import Event, Message
from runhooks.summary.graph_def import GraphLike, encode_graph
from runhooks.summary.message import session_log_event, summary_event
from runhooks.summary.writer import Writer

#: Where a writer keeps the one that it writes with.
_INNER = ("file_writer", "event_writer")


class ProtoWriter(Writer):
    """Writes Protocol Buffers messages with the writer of another library.

    As with that writer itself, arrays are read before a call returns, and the queue, the thread
    and the errors are its own.

    Args:
        writer: A ``SummaryWriter`` of PyTorch or tensorboardX, a ``FileWriter`` of TensorFlow,
            PyTorch or tensorboardX, or an ``EventFileWriter`` of TensorBoard.
        event_class: Its class of events, as ``event_class_of`` finds it.
    """

    def __init__(self, writer: Any, event_class: Any) -> None:
        self._writer = writer
        self._event_class = event_class

    @property
    def closed(self) -> bool:
        """Whether it is closed, if ``writer`` tells."""
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
    """Return the class of the events that ``writer`` takes; None if it does not take events.

    Each library takes only its own ``Event``, from the ``event_pb2`` that the module of its
    writers imports.
    """
    innermost = _chain(writer)[-1]
    if innermost is not None and not hasattr(innermost, "add_event"):
        return None
    return next((module.event_pb2.Event for module in _modules(writer)), None)


def _chain(writer: Any) -> list[Any]:
    """Return ``writer``, the writer inside it, and so on; None in place of a closed one."""
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


class TakesSummaries(Protocol):
    """A writer of the user's. ``add_session_log``, ``flush``, ``close`` are called if present."""

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add ``summary``, a ``Summary``, at ``global_step``."""
        ...


class WritesWithAnother(Protocol):
    """A ``SummaryWriter`` of PyTorch or of tensorboardX."""

    file_writer: Any

    def flush(self) -> None:
        """Return when everything added before is written."""
        ...


#: What can be given as a ``summary_writer``.
AnyWriter = TakesSummaries | WritesWithAnother


def adapted(writer: AnyWriter) -> Writer:
    """Return a ``Writer`` that writes with ``writer``, or ``writer`` if it is one.

    Args:
        writer: Anything with ``add_summary``, a ``SummaryWriter`` of PyTorch or tensorboardX, a
            ``FileWriter`` of TensorFlow or an ``EventFileWriter`` of TensorBoard.

    Raises:
        TypeError: It is anything else.
    """
    if isinstance(writer, Writer):
        return writer
    add_summary = getattr(writer, "add_summary", None)
    event_class = event_class_of(writer)
    # An add_summary of the user's takes our summaries, whatever it writes with.
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


class _Adapter(Writer):
    """Writes with an object of the user's, whatever it has beside ``add_summary``."""

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


class MultiWriter(Writer):
    """Passes everything to several writers.

    All are called, flushed and closed even if one of them fails; the first error is then raised,
    with notes on the others.

    Args:
        writers: Writers of any kind that a hook takes.

    Raises:
        TypeError: One is not a writer.
        ValueError: There is none, or one is given twice.
    """

    def __init__(self, writers: Iterable[AnyWriter]) -> None:
        if isinstance(writers, str | Writer) or not isinstance(writers, Iterable):
            raise TypeError(f"writers must be a list of writers, got {writers!r}")
        self._writers = [adapted(writer) for writer in writers]
        if not self._writers or len(set(map(id, self._writers))) < len(self._writers):
            raise ValueError(f"writers must be one or more, each of them once, got {writers!r}")

    @property
    def closed(self) -> bool:
        """Whether all of them are closed."""
        return all(writer.closed for writer in self._writers)

    def scalar(self, tag: str, value: Any, step: int) -> None:
        call_all(partial(writer.scalar, tag, value, step) for writer in self._writers)

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        call_all(partial(writer.scalars, values, step) for writer in self._writers)

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        call_all(partial(writer.add_summary, summary, global_step) for writer in self._writers)

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        call_all(
            partial(writer.add_session_log, session_log, global_step) for writer in self._writers
        )

    def graph(self, graph: GraphLike) -> None:
        call_all(partial(writer.graph, graph) for writer in self._writers)

    def flush(self) -> None:
        call_all(writer.flush for writer in self._writers)

    def close(self) -> None:
        call_all(writer.close for writer in self._writers)
