"""TensorFlow as a ``Framework``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.client import timeline
from tensorflow.python.platform import tf_logging
from tensorflow.python.summary.writer.writer import SummaryToEventTransformer

from runhooks import errors
from runhooks.errors import AbortedError, UnavailableError, register_end_of_input
from runhooks.graph.base import Framework
from runhooks.summary import FileWriter, FileWriterCache, SessionLog, Summary

v1 = tf.compat.v1

_Theirs: Any = v1.train.NanLossDuringTrainingError

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, AbortedError, UnavailableError)

register_end_of_input(tf.errors.OutOfRangeError)


class NanLossDuringTrainingError(errors.NanLossDuringTrainingError, _Theirs):  # type: ignore[misc]
    """The error of runhooks and of TensorFlow; programs catch either."""


@dataclass(eq=False)
class TimelineTrace:
    """Writes traces of runs for Perfetto, and their records to the event file of ``output_dir``."""

    folder: Path
    output_dir: str | os.PathLike[str]
    graph: Any
    show_dataflow: bool
    show_memory: bool
    options: Any = field(
        default_factory=lambda: v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    )

    def add(self, step: int, run_metadata: Any) -> Path:
        trace = timeline.Timeline(run_metadata.step_stats).generate_chrome_trace_format(
            show_dataflow=self.show_dataflow, show_memory=self.show_memory
        )
        path = self.folder / f"timeline-{step}.json"
        path.write_text(trace)
        writer = FileWriterCache.get(self.output_dir)
        writer.graph(self.graph)
        writer.add_run_metadata(run_metadata, f"step_{step}")
        writer.flush()
        return path


class TensorFlow(Framework):
    name = "tensorflow"
    may_drop_summaries = True
    runs_one_program = True
    title = "TensorFlow"
    log = tf_logging
    nan_loss_error = NanLossDuringTrainingError

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, _LOST)

    def memory(self) -> dict[str, int]:
        # TensorFlow does not count that of the CPU.
        gpus = tf.config.list_logical_devices("GPU")
        names = [device.name.removeprefix("/device:") for device in gpus]
        return {
            f"{name.lower()}/{kind}_bytes": int(number)
            for name in names
            for kind, number in tf.config.experimental.get_memory_info(name).items()
        }

    def details(self) -> dict[str, str]:
        devices = [it.name for it in tf.config.list_physical_devices()]
        return {"devices": ", ".join(it.removeprefix("/physical_device:") for it in devices)}

    def trace_runs(
        self,
        folder: Path,
        output_dir: str | os.PathLike[str],
        graph: Any,
        *,
        show_dataflow: bool,
        show_memory: bool,
    ) -> TimelineTrace:
        return TimelineTrace(folder, output_dir, graph, show_dataflow, show_memory)

    def share_event_file(self, writer: Any, directory: str | os.PathLike[str]) -> None:
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

    def message(self, message: Any) -> Any:
        kind = _MESSAGES.get(type(message))
        return message if kind is None else kind.FromString(message.SerializeToString())


_MESSAGES: dict[type, Any] = {Summary: v1.Summary, SessionLog: v1.SessionLog}

ENGINE = TensorFlow()


_START = v1.SessionLog.START


class SharedEventFile:
    """A stand-in for TensorFlow's ``EventFileWriter``, over ``writer``.

    A START in a file of its own would hide later steps in this one.
    """

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._reached = 0  # the last step of its events since a session has started
        self._starts = writer.starts

    def get_logdir(self) -> str:
        return self._writer.get_logdir()

    def add_event(self, event: Any) -> None:
        """Add ``event``, unless it is a START that would hide steps not made again.

        TensorFlow's hooks write one each, some after the first run.
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
        self._writer.flush()

    def close(self) -> None:
        """Flush; others may write to the file."""
        self._writer.flush()

    def reopen(self) -> None:
        self._writer.reopen()


_TheirWriter: Any = v1.summary.FileWriter


class _FileWriter(_TheirWriter):  # type: ignore[misc]
    """TensorFlow's, without a file of its own."""

    def __init__(self, file: SharedEventFile) -> None:
        self._closed = False
        SummaryToEventTransformer.__init__(self, file)
