"""``RunTrace``: traces of single runs, as TensorFlow itself makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.client import timeline

from runhooks import clock
from runhooks.events import Event
from runhooks.summary import FileWriterCache

v1 = tf.compat.v1


class RunTrace:
    """Writes each run that it is shown as ``<folder>/timeline-<step>.json``, for Perfetto.

    The record of the run goes into the event file of the folder, for TensorBoard's graph tab.
    ``show_dataflow``: with arrows from what makes a tensor to what uses it; ``show_memory``: with
    the tensors that are alive. ``options``: the run options of a run that is to be shown.
    """

    def __init__(self, folder: Path, *, show_dataflow: bool, show_memory: bool) -> None:
        self.options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        self._folder = folder
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory

    def add(self, step: int, run_metadata: Any) -> Path:
        """Write the run that led to ``step``; where to."""
        trace = timeline.Timeline(run_metadata.step_stats).generate_chrome_trace_format(
            show_dataflow=self._show_dataflow, show_memory=self._show_memory
        )
        path = self._folder / f"timeline-{step}.json"
        path.write_text(trace)
        record = v1.summary.TaggedRunMetadata(
            tag=f"step_{step}", run_metadata=run_metadata.SerializeToString()
        )
        writer = FileWriterCache.get(self._folder)
        writer.add_event(Event(clock.wall(), tagged_run_metadata=record))
        writer.flush()
        return path
