"""``SummaryOutput``: where a hook writes its summaries."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from runhooks.contract import RawSession
from runhooks.engines.foreign import session_of
from runhooks.graph.default_graph import get_default_graph
from runhooks.hooks.helpers.rank_folder import rank_folder
from runhooks.hooks.helpers.session import step_of
from runhooks.ranks import current_group
from runhooks.summary import FileWriterCache, SessionLog, SessionStatus
from runhooks.summary.sinks.adapted import AnyWriter, adapted

#: A writer of summaries as hooks take it; see ``summary.adapted``.
SummaryWriter: TypeAlias = AnyWriter

#: The writers that have the START of a session already, and those that have a graph.
_started: WeakKeyDictionary[RawSession, list[Any]] = WeakKeyDictionary()
_with_graph: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


class SummaryOutput:
    """Writes for one hook: with a given writer, with that of a directory, or nowhere.

    A writer of another library or of the user's own gets messages of the framework whose graph it
    is, if the framework has any: the writer may not know others.

    Args:
        output_dir: A directory, whose writer all hooks of the process share. Ignored if a
            ``summary_writer`` is given.
        summary_writer: The writer. With neither, what is added is dropped.

    Raises:
        TypeError: If ``summary_writer`` cannot write summaries.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output_dir = output_dir if summary_writer is None else None
        self._given: Any = summary_writer
        self._writer: Any = None if summary_writer is None else adapted(summary_writer)
        self._is_others = self._writer is not summary_writer
        self._message: Callable[[Any], Any] = _as_it_is

    @property
    def has_place(self) -> bool:
        """Whether there is a directory or a writer to write to."""
        return self._output_dir is not None or self._given is not None

    @property
    def writer(self) -> Any:
        """The writer in use; None if there is none."""
        return self._writer

    def open(self, on_each_rank: bool = False) -> None:
        """Get the writer; for a hook's ``begin``.

        Args:
            on_each_rank: Whether a rank other than the chief writes, too: to a directory of its
                own, ``rank-1`` inside the directory of the chief.
        """
        if not on_each_rank and not current_group().is_chief:
            self._writer = None
        elif self._output_dir is not None:
            directory = rank_folder(self._output_dir)
            self._given = FileWriterCache.get(directory)
            get_default_graph().engine.share_event_file(self._given, directory)
            self._writer = adapted(self._given)
        elif self._is_others:
            self._message = get_default_graph().engine.message

    def start(self, session: RawSession) -> None:
        """Write that a session starts, or goes on, at the step after its global step.

        TensorBoard then drops what an earlier session wrote of the steps that are made again. The
        writer of a directory also gets the graph. Of all hooks that share a writer the first one
        writes this.
        """
        if self._writer is None:
            return
        if self._output_dir is not None and self._is_first(_with_graph, session.graph):
            self._writer.graph(session.graph)
        if self._is_first(_started, session_of(session)):
            self.add_session_log(SessionLog(SessionStatus.START), step_of(session) + 1)

    def _is_first(self, known: WeakKeyDictionary[Any, list[Any]], key: Any) -> bool:
        writers = known.setdefault(key, [])
        if any(self._given is writer for writer in writers):
            return False
        writers.append(self._given)
        return True

    def add_session_log(self, session_log: SessionLog, step: int) -> None:
        """Add ``session_log`` at ``step``."""
        if self._writer is not None:
            self._writer.add_session_log(self._message(session_log), step)

    def add_summary(self, summary: Any, step: int) -> None:
        """Add ``summary`` at ``step``."""
        if self._writer is not None:
            self._writer.add_summary(self._message(summary), step)

    def flush(self) -> None:
        """Return when all that was added is written."""
        if self._writer is not None:
            self._writer.flush()


def _as_it_is(message: Any) -> Any:
    return message
