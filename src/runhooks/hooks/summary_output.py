"""Where the summaries of a hook go: a writer that was given, the one of a directory, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from runhooks.contract import RawSession
from runhooks.graph.graph import get_default_graph
from runhooks.hooks.global_step import step_of
from runhooks.summary import FileWriterCache, SessionLog, SessionStatus
from runhooks.summary.sinks.adapted import AnyWriter, adapted

#: What hooks take as a writer of summaries; see ``summary.adapted``.
SummaryWriter: TypeAlias = AnyWriter


def add_start(writer: Any, session: RawSession) -> None:
    """Write that a session starts, or goes on, at the step after its global step.

    TensorBoard then drops what an earlier session wrote of the steps that come again. What it
    wrote of the restored step itself stays: that step is not made again.
    """
    writer.add_session_log(SessionLog(SessionStatus.START), step_of(session) + 1)


class SummaryOutput:
    """Writes for one hook.

    ``output_dir``: a directory whose writer all hooks of the process share; not used if a
    ``summary_writer`` is given. With neither, what is added goes nowhere. A writer of another
    library or of the user's own is handed messages of the framework whose graph it is, if that has
    any: it may know no other.

    Raises TypeError if ``summary_writer`` is none that can be written with.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output_dir = output_dir if summary_writer is None else None
        self._writer = None if summary_writer is None else adapted(summary_writer)
        self._is_others = self._writer is not summary_writer
        self._message: Callable[[Any], Any] = _as_it_is

    def open(self) -> None:
        """Get the writer; for a hook's ``begin``."""
        if self._output_dir is not None:
            self._writer = adapted(FileWriterCache.get(self._output_dir))
        elif self._is_others:
            self._message = getattr(get_default_graph().engine, "message", _as_it_is)

    def start(self, session: RawSession) -> None:
        """Mark where a session starts; for a hook's ``after_create_session``."""
        if self._writer is not None:
            add_start(self, session)

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
