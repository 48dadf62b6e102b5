"""``FileWriter``: the event file of a ``SummaryWriter``, with the methods of torch's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from runhooks import arguments, clock
from runhooks.events import Event, Message
from runhooks.events.format import proto
from runhooks.events.writing.write_queue import MAX_QUEUE, Batch, Sink, WriteQueue
from runhooks.summary import FileWriter as EventFileWriter
from runhooks.summary import Summary
from runhooks.summary.file_writer import FileOptions, SharedFile
from runhooks.summary.message import EncodedEvent, nbytes_of

_AT_ONCE = 1e-3  # seconds
_WALL_TIME, _STEP = 1, 2

_Number = TypeVar("_Number", int, float)


class FileWriter(EventFileWriter):
    """A ``runhooks.summary.FileWriter`` that takes times, and arguments as ``SummaryWriter``."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        arguments.whole(0, max_queue=max_queue)
        arguments.not_negative(flush_secs=flush_secs)
        self._given = os.fspath(log_dir)
        super().__init__(
            self._given,
            max_queue=max(max_queue, MAX_QUEUE),
            flush_secs=max(flush_secs, _AT_ONCE),
            filename_suffix=filename_suffix,
        )

    def __getstate__(self) -> tuple[Any, ...]:
        return *super().__getstate__(), self._given

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *of_file, self._given = state
        super().__setstate__(tuple(of_file))

    @property
    def event_writer(self) -> FileWriter:
        """Itself: what takes events."""
        return self

    def get_logdir(self) -> str:
        """Return the directory of the event file, as it was given."""
        return self._given

    def put(self, tag: str, value: Any, step: int, wall_time: float) -> None:
        """Add a scalar that is checked."""
        self._state.start = None
        self._put(tag, value, step, wall_time)

    def add_event(self, event: Message, step: Any = None, walltime: float | None = None) -> None:
        """Add ``event``, of Protocol Buffers or ours, with this step and time; None: its own.

        An event without a time gets that of the call.
        """
        if walltime is None:
            walltime = getattr(event, "wall_time", None) or clock.wall()
        step = getattr(event, "step", 0) if step is None else step
        number, seconds = step_and_time(step, walltime)
        # Of a field given twice, the later counts.
        encoded = event.SerializeToString() + proto.double_field(_WALL_TIME, seconds)
        encoded += proto.varint_field(_STEP, number)
        self._add(EncodedEvent(seconds, number, encoded))

    def add_summary(
        self,
        summary: Summary | Message | bytes,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add ``summary``, of Protocol Buffers or ours."""
        step, wall_time = step_and_time(global_step, walltime)
        if not isinstance(summary, Summary | bytes):
            summary = summary.SerializeToString()  # the caller may go on to change it
        self._add(Event(wall_time, step, summary), nbytes_of(summary))


class NoFileWriter(FileWriter):
    def _open(self, logdir: str, options: FileOptions, lazily: bool = False) -> None:
        self._logdir, self._options, self._closed = logdir, options, False
        self._file = SharedFile(WriteQueue(_Nowhere()))
        super(EventFileWriter, self).__init__(self._file.queue, self._file.state)


class _Nowhere(Sink):
    name = "nowhere"

    def write(self, batch: Batch) -> list[BaseException]:
        return []


def step_and_time(step: Any, wall_time: float | None) -> tuple[int, float]:
    """Return both as numbers, 0 and now for None; raise ValueError or TypeError."""
    number = 0 if step is None else _converted(int, "global_step", step)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"global_step must fit in 64 bits, got {step!r}")
    if wall_time is None:
        return number, clock.wall()
    return number, _converted(float, "walltime", wall_time)


def _converted(kind: Callable[[Any], _Number], name: str, value: Any) -> _Number:
    try:
        return kind(value)
    except (ValueError, TypeError, OverflowError) as error:
        wrong = TypeError if isinstance(error, TypeError) else ValueError
        raise wrong(f"{name} must be a number, got {value!r}") from None
