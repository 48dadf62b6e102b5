"""``MultiWriter``: several writers as one, those of users among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from runhooks.errors import call_all
from runhooks.events import Message
from runhooks.summary.graph_def import GraphLike
from runhooks.summary.writer import Writer


class AnyWriter(Protocol):
    """What can be given as a ``summary_writer``: one of ours, or one of the user's.

    ``add_session_log``, ``flush`` and ``close`` are called if it has them.
    """

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add ``summary``, a ``Summary``, at ``global_step``."""
        ...


def adapted(writer: AnyWriter) -> Writer:
    """Return a ``Writer`` that writes with ``writer``, or ``writer`` if it is one.

    Args:
        writer: Anything with ``add_summary``. It is given a ``Summary``, and on a graph of
            TensorFlow, a message of TensorFlow.

    Raises:
        TypeError: It is anything else.
    """
    if isinstance(writer, Writer):
        return writer
    if not hasattr(writer, "add_summary"):
        raise TypeError(
            f"summary_writer must have add_summary(summary, step), got {writer!r}; in place of a "
            "SummaryWriter of PyTorch or tensorboardX, use that of runhooks.tensorboard"
        )
    return _Adapter(writer)


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
