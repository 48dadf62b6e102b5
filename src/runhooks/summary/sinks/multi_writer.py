"""``MultiWriter``: several writers as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from runhooks.events import Message
from runhooks.events.writing.failures import call_all
from runhooks.summary.graph_def import GraphLike
from runhooks.summary.sinks.adapted import AnyWriter, adapted
from runhooks.summary.summary_writer import SummaryWriter


class MultiWriter(SummaryWriter):
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
        if isinstance(writers, str | SummaryWriter) or not isinstance(writers, Iterable):
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

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        call_all(partial(writer.scalars, step, values) for writer in self._writers)

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
