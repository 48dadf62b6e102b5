"""What TensorFlow has of its own: errors, log, memory, traces, checkpoints and event files.

Its saver saves variables alone, and deletes its files without telling anybody. A ``START`` in one
event file hides later steps in another beside it.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.client import timeline
from tensorflow.python.platform import tf_logging
from tensorflow.python.summary.writer.writer import SummaryToEventTransformer

from runhooks import errors
from runhooks.checkpoint import Saver, Snapshot, read_checkpoint, write_checkpoint
from runhooks.checkpoint.attempts import discard
from runhooks.checkpoint.format import HOOK_STATES
from runhooks.checkpoint.tensors import COMMIT
from runhooks.errors import (
    AbortedError,
    DataLossError,
    NotFoundError,
    UnavailableError,
    register_end_of_input,
)
from runhooks.graph.base import Framework
from runhooks.summary import FileWriter, FileWriterCache, SessionLog, Summary

v1 = tf.compat.v1

_gfile = tf.io.gfile

_log = logging.getLogger("runhooks")

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
        """As in ``Framework``: those of TensorFlow's ``FileWriterCache``, now and later."""
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


def _is_url(path: str) -> bool:
    return "://" in path


def check_scheme(path: str | os.PathLike[str]) -> None:
    """Raise ValueError if ``path`` is a URL whose scheme TensorFlow, which saves, does not know."""
    scheme, separator, _ = os.fspath(path).partition("://")
    known = _gfile.get_registered_schemes()
    if separator and scheme not in known:
        names = ", ".join(f"{name}://" for name in sorted(filter(None, known)))
        raise ValueError(
            f"checkpoints of a tf.Graph cannot be at {os.fspath(path)!r}: TensorFlow "
            f"writes them, and knows {names} and local paths; give one of these, or import a "
            f"package that adds {scheme}://, such as tensorflow_io"
        )


def _names_in(url: str) -> list[str]:
    """Return the names in a folder; none if there is none."""
    return [it.rstrip("/") for it in _gfile.listdir(url)] if _gfile.isdir(url) else []


# What follows the path of a checkpoint in the name of a file; of format V1, maybe nothing.
_PART = re.compile(r"(\.index|-\d{5}-of-\d{5})$")


def save_states(path: str, states: Mapping[str, Any], step: int) -> None:
    """Write ``states`` for the checkpoint ``path``, before it, so that no checkpoint lacks them."""
    if not states:
        return
    snapshot = Snapshot({}, dict(states))
    if not _is_url(path):
        write_checkpoint(Path(path + HOOK_STATES), snapshot, global_step=step)
        return
    with tempfile.TemporaryDirectory() as folder:
        local, url = Path(folder, "states"), path + HOOK_STATES
        write_checkpoint(local, snapshot, global_step=step)
        _gfile.makedirs(url)
        _gfile.copy(str(local / COMMIT), f"{url}/{COMMIT}", overwrite=True)


def load_states(path: str) -> dict[str, Any]:
    """Return the states saved with the checkpoint ``path``; none if they are damaged."""
    try:
        if not _is_url(path):
            return read_checkpoint(Path(path + HOOK_STATES)).states
        file = f"{path}{HOOK_STATES}/{COMMIT}"
        if not _gfile.exists(file):
            return {}
        with tempfile.TemporaryDirectory() as folder:
            _gfile.copy(file, f"{folder}/{COMMIT}")
            return read_checkpoint(Path(folder)).states
    except NotFoundError:
        return {}
    except DataLossError as error:
        _log.warning("hooks start over: their saved states are damaged: %s", error)
        return {}


def sweep_states(path: str) -> None:
    """Remove the states of checkpoints beside ``path`` that are gone."""
    parent = os.path.dirname(path) or "."  # noqa: PTH120 - it may be a URL
    names = _names_in(parent)
    checkpoints = {_PART.sub("", name) for name in names}
    for name in names:
        if name.endswith(HOOK_STATES) and name.removesuffix(HOOK_STATES) not in checkpoints:
            if not _is_url(path):
                discard(Path(parent, name))
            elif _names_in(f"{parent}/{name}") == [COMMIT]:
                _gfile.rmtree(f"{parent}/{name}")


def take_over_checkpoints(saver: Any, path: str, restored: str | None) -> None:
    """Let a saver that knows no checkpoint know those of its name that a session goes on from.

    Else it would neither delete nor list them. ``path``: what it saves as, without the step;
    ``restored``: the checkpoint that the session was restored from, if any.
    """
    if restored is None or saver.last_checkpoints:
        return
    folder, name = os.path.split(path)
    if os.path.realpath(os.path.dirname(restored)) != os.path.realpath(folder):  # noqa: PTH120
        return
    state = v1.train.get_checkpoint_state(folder)
    listed = [] if state is None else state.all_model_checkpoint_paths
    own = [it for it in listed if os.path.basename(it).rpartition("-")[0] == name]  # noqa: PTH119
    saver.recover_last_checkpoints(own)


def respell_checkpoints(saver: Any, folder: str) -> None:
    """Let ``saver`` know its checkpoints in ``folder`` by the name that it is about to use.

    It takes ``ck/a`` and ``./ck/a`` for two checkpoints, and deletes a good one too early.
    """
    known = list(getattr(saver, "last_checkpoints", ()))
    here = os.path.realpath(folder)
    spelled = [
        os.path.join(folder, name) if os.path.realpath(parent) == here else path  # noqa: PTH118
        for path in known
        for parent, name in [os.path.split(path)]
    ]
    if spelled != known:
        saver.recover_last_checkpoints(list(dict.fromkeys(spelled)))


def check_no_other_checkpoints(checkpoint_dir: str) -> None:
    """Raise ValueError if a directory has checkpoints of another engine."""
    folder = checkpoint_dir.rstrip("/")
    for name in sorted(_names_in(checkpoint_dir)):
        files = [] if name.endswith(HOOK_STATES) else _names_in(f"{folder}/{name}")
        if COMMIT in files:
            raise ValueError(
                f"checkpoint_dir {checkpoint_dir!r} has checkpoints of another engine, such as "
                f"{name!r}, which a session of a tf.Graph cannot restore: give another "
                "checkpoint_dir to start over. To begin with their weights, also give "
                f"Scaffold(init_from=rh.InitFrom({checkpoint_dir!r}))"
            )


def check_saver(saver: Any) -> None:
    """Raise TypeError for a ``runhooks.Saver``."""
    if isinstance(saver, Saver):
        raise TypeError(
            "the saver must be a tf.compat.v1.train.Saver, or in a Scaffold a tf.train.Checkpoint, "
            f"where the graph is TensorFlow's, got {saver!r}: rh.Saver is for the other engines"
        )


_START = v1.SessionLog.START


class SharedEventFile:
    """Stands in the place of TensorFlow's ``EventFileWriter``, and adds events to ``writer``."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._reached = 0  # the last step of its events since a session has started
        self._starts = writer.starts

    def get_logdir(self) -> str:
        return self._writer.get_logdir()

    def add_event(self, event: Any) -> None:
        """Add ``event``, unless it is a START that would hide steps which are not made again.

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
    """A writer of TensorFlow's without a file of its own."""

    def __init__(self, file: SharedEventFile) -> None:
        self._closed = False
        SummaryToEventTransformer.__init__(self, file)
