"""``TensorFlow``: its errors, log, memory, messages and traces of runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.client import timeline
from tensorflow.python.platform import tf_logging

from runhooks import errors
from runhooks.engines.tensorflow.files import share_event_file
from runhooks.errors import AbortedError, UnavailableError, register_end_of_input
from runhooks.graph.base import Framework
from runhooks.summary import FileWriterCache, SessionLog, Summary

v1 = tf.compat.v1

_Theirs: Any = v1.train.NanLossDuringTrainingError

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, AbortedError, UnavailableError)

register_end_of_input(tf.errors.OutOfRangeError)


class NanLossDuringTrainingError(errors.NanLossDuringTrainingError, _Theirs):  # type: ignore[misc]
    """The error of runhooks and that of TensorFlow, so that programs catch either."""


@dataclass
class TimelineTrace:
    """Writes traces of runs to ``<folder>/timeline-<step>.json``, for Perfetto.

    The record of each run goes into the event file of ``output_dir``, for TensorBoard's graph tab.
    ``options`` are those of a traced run.
    """

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
    """TensorFlow as hooks and session layers see it."""

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
        share_event_file(writer, directory)

    def message(self, message: Any) -> Any:
        kind = _MESSAGES.get(type(message))
        return message if kind is None else kind.FromString(message.SerializeToString())


_MESSAGES: dict[type, Any] = {Summary: v1.Summary, SessionLog: v1.SessionLog}

ENGINE = TensorFlow()
