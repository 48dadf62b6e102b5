"""One event file for a directory: TensorFlow's writers there write to the file of runhooks.

A ``START`` in one file hides what another file beside it has of later steps.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tensorflow.python.summary.writer.writer import SummaryToEventTransformer

from runhooks.summary import FileWriter

v1 = tf.compat.v1

_START = v1.SessionLog.START


class SharedEventFile:
    """Stands in the place of TensorFlow's ``EventFileWriter``, and adds events to ``writer``."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._reached = 0  # the last step of TensorFlow's events since a session has started
        self._starts = writer.starts

    def get_logdir(self) -> str:
        """Return the directory of the file."""
        return self._writer.get_logdir()

    def add_event(self, event: Any) -> None:
        """Add ``event``, unless it is a START that would hide steps which are not made again.

        TensorFlow's hooks write one each, some after the first run; where a session of runhooks
        starts, its own START is there already.
        """
        if self._starts != self._writer.starts:
            self._starts, self._reached = self._writer.starts, 0
        if event.session_log.status == _START:
            if event.step >= self._reached:
                return
            self._reached = 0
        self._reached = max(self._reached, event.step)
        if self._writer.closed:
            self._writer.reopen()
        self._writer.add_event(event)

    def flush(self) -> None:
        """Return when all events are written."""
        self._writer.flush()

    def close(self) -> None:
        """Flush; the file stays open for the others who write to it."""
        self._writer.flush()

    def reopen(self) -> None:
        """Continue in a new file if this one was closed or deleted."""
        self._writer.reopen()


_TheirWriter: Any = v1.summary.FileWriter


class _FileWriter(_TheirWriter):  # type: ignore[misc]
    """A writer of TensorFlow's without a file of its own."""

    def __init__(self, file: SharedEventFile) -> None:
        self._closed = False
        SummaryToEventTransformer.__init__(self, file)


def share_event_file(writer: FileWriter, directory: str | os.PathLike[str]) -> None:
    """Let the writers of TensorFlow's ``FileWriterCache`` for ``directory`` write to ``writer``.

    Whoever asks the cache for the directory, by this path, later is given one that does, too.
    """
    here = os.path.realpath(directory)
    cache = vars(v1.summary.FileWriterCache)
    with cache["_lock"]:
        known: dict[str, Any] = cache["_cache"]
        there = [it for path, it in known.items() if os.path.realpath(path) == here]
        for theirs in there:
            if not isinstance(theirs.event_writer, SharedEventFile):
                theirs.event_writer.close()
                theirs.event_writer = SharedEventFile(writer)
        made = there[0] if there else _FileWriter(SharedEventFile(writer))
        known.setdefault(os.fspath(directory), made)
