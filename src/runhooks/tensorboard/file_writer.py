"""``FileWriter``: the event file of a ``SummaryWriter``, with the methods of torch's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from runhooks import arguments, clock
from runhooks.events import Event, Message, SessionLog, SessionStatus
from runhooks.events.format import proto
from runhooks.events.place import place
from runhooks.events.reading.find import find_files
from runhooks.events.writing.write_queue import MAX_QUEUE
from runhooks.stores import hidden
from runhooks.stores.path import path_of
from runhooks.summary import FileWriter as EventFileWriter
from runhooks.summary import Summary
from runhooks.summary.message import EncodedEvent, nbytes_of

_AT_ONCE = 1e-3  # seconds
_WALL_TIME, _STEP = 1, 2
_GRAPH_TAG = "step1"

_Number = TypeVar("_Number", int, float)


class TimedWriter(EventFileWriter):
    """A writer whose caller gives the times of events: what ``event_writer`` is."""

    @property
    def _ev_writer(self) -> TimedWriter:
        """Itself: programs for tensorboardX ask for ``event_writer._ev_writer._file_name``."""
        return self

    @property
    def _file_name(self) -> str:
        """The path of the newest event file in the directory."""
        return str(max(find_files(path_of(place(log_dir=self.get_logdir())))))

    def put(self, tag: str, value: Any, step: int, wall_time: float) -> None:
        self._state.start = None
        self._put(tag, value, step, wall_time)

    def add(self, event: Event, nbytes: int = 0) -> None:
        self._add(event, nbytes)


class FileWriter:
    """An event file in ``log_dir``, as ``SummaryWriter.file_writer`` has one.

    It is written as ``runhooks.summary.FileWriter`` writes it, which all writers of a directory
    that are open in this process share.

    Args:
        log_dir: The directory.
        max_queue: Ours never wait for the disk before 500,000 events do; a higher number raises
            that.
        flush_secs: Events are written after 0.2 seconds at the latest, or at once if this is less.
        filename_suffix: The end of the name of the file.

    Raises:
        OSError: No file can be made in ``log_dir``.
        TypeError, ValueError: An argument is wrong or out of range.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        arguments.whole(0, max_queue=max_queue)
        arguments.not_negative(flush_secs=flush_secs)
        self._logdir = hidden(os.fspath(log_dir))
        self._default_step: int | None = None
        #: The time of what is added without one; None: that of the call.
        self.default_wall_time: float | None = None
        self._writer = TimedWriter(
            self._logdir,
            max_queue=max(max_queue, MAX_QUEUE),
            flush_secs=max(flush_secs, _AT_ONCE),
            filename_suffix=filename_suffix,
        )
        #: Adds ``tag``, ``value``, ``step`` and ``wall_time`` of a scalar that is checked.
        self.put = self._writer.put

    @property
    def event_writer(self) -> TimedWriter | NoFileWriter:
        """The writer of the file, whose ``add_event`` leaves the time and step of an event."""
        return self._writer

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._logdir

    def at(self, step: Any, wall_time: float | None) -> tuple[int, float]:
        """Return a step and a time, those of ``use_metadata`` or 0 and now for what is None."""
        if step is None:
            step = self._default_step
        if wall_time is None:
            wall_time = self.default_wall_time
        number = 0 if step is None else _converted(int, "global_step", step)
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"global_step must fit in 64 bits, got {step!r}")
        if wall_time is None:
            return number, clock.wall()
        return number, _converted(float, "walltime", wall_time)

    def add_event(self, event: Message, step: Any = None, walltime: float | None = None) -> None:
        """Add ``event``, of Protocol Buffers or ours, with this step and time.

        Its own step stays if ``step`` is None; its own time does not.
        """
        number, seconds = self.at(step, walltime)
        # Of a field that comes twice, the later one counts.
        encoded = event.SerializeToString() + proto.double_field(_WALL_TIME, seconds)
        if step is not None or self._default_step is not None:
            encoded += proto.varint_field(_STEP, number)
        self._writer.add_event(EncodedEvent(seconds, number, encoded))

    def start_session(self, step: int) -> None:
        """Have TensorBoard drop what was written before of this step and later ones."""
        self.add_session_log(SessionLog(SessionStatus.START), step)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add ``session_log``, of Protocol Buffers or ours."""
        self._writer.add_session_log(session_log, global_step)

    def add_summary(
        self,
        summary: Summary | Message | bytes,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add ``summary``, of Protocol Buffers or ours."""
        step, wall_time = self.at(global_step, walltime)
        if not isinstance(summary, Summary | bytes):
            summary = summary.SerializeToString()  # the caller may go on to change it
        self._writer.add(Event(wall_time, step, summary), nbytes_of(summary))

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """Add a graph and the metadata of a run of it, messages or bytes."""
        graph, run_metadata = (
            part if isinstance(part, bytes) else part.SerializeToString() for part in graph_profile
        )
        step, wall_time = self.at(None, walltime)
        self._writer.add(Event(wall_time, step, graph_def=graph))
        tagged = proto.text_field(1, _GRAPH_TAG) + proto.bytes_field(2, run_metadata)
        self._writer.add(Event(wall_time, step, tagged_run_metadata=tagged))

    def add_onnx_graph(self, graph: Message | bytes, walltime: float | None = None) -> None:
        """Add a graph, a message or bytes."""
        encoded = graph if isinstance(graph, bytes) else graph.SerializeToString()
        step, wall_time = self.at(None, walltime)
        self._writer.add(Event(wall_time, step, graph_def=encoded))

    add_openvino_graph = add_onnx_graph

    def flush(self) -> None:
        """Return when everything added before is written; raise the first error, if any."""
        self._writer.flush()

    def close(self) -> None:
        """Flush, and close the file; closing it twice is fine."""
        self._writer.close()

    def reopen(self) -> None:
        """Continue after it was closed or its file was deleted, in a new file."""
        self._writer.reopen()

    @contextmanager
    def use_metadata(
        self, *, global_step: int | None = None, walltime: float | None = None
    ) -> Iterator[FileWriter]:
        """Let what is added in the ``with`` block have this step and time if it is given none.

        Raises:
            ValueError: Neither is given, or the block is in another one.
        """
        if self._default_step is not None or self.default_wall_time is not None:
            raise ValueError("use_metadata must not be used inside of another use_metadata")
        if global_step is None and walltime is None:
            raise ValueError("use_metadata must be given a global_step, a walltime or both")
        self._default_step, self.default_wall_time = global_step, walltime
        try:
            yield self
        finally:
            self._default_step = self.default_wall_time = None


class NoFileWriter(FileWriter):
    """Writes nothing; the directory is not made."""

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        self._logdir = hidden(os.fspath(log_dir))
        self._default_step = self.default_wall_time = None
        self.put = _nothing

    @property
    def event_writer(self) -> NoFileWriter:
        return self

    def add_event(self, event: Message, step: Any = None, walltime: float | None = None) -> None:
        return

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        return

    def add_summary(
        self,
        summary: Summary | Message | bytes,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        return

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        return

    def add_onnx_graph(self, graph: Message | bytes, walltime: float | None = None) -> None:
        return

    add_openvino_graph = add_onnx_graph

    def flush(self) -> None:
        return

    def close(self) -> None:
        return

    def reopen(self) -> None:
        return


def _converted(kind: Callable[[Any], _Number], name: str, value: Any) -> _Number:
    try:
        return kind(value)
    except (ValueError, TypeError, OverflowError) as error:
        wrong = TypeError if isinstance(error, TypeError) else ValueError
        raise wrong(f"{name} must be a number, got {value!r}") from None


def _nothing(tag: str, value: Any, step: int, wall_time: float) -> None:
    return
