"""Summaries as values: in memory, in JSON lines, and for trackers, which take no messages."""

from __future__ import annotations

import itertools
import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from io import FileIO
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from runhooks.arrays.values import read_number, read_numbers
from runhooks.errors import add_note
from runhooks.events import (
    Event,
    Scalars,
    SessionLog,
    SessionStatus,
    SummaryDecoder,
    TaggedValue,
)
from runhooks.events.reading.messages import SESSION_LOG, parse_hparams
from runhooks.events.reading.table import json_value
from runhooks.events.writing.event_file import is_elsewhere, local_path, refuse_deleted
from runhooks.events.writing.write_queue import MESSAGE, Batch, Sink, WriteQueue
from runhooks.summary.kinds.tensor import encode_scalar
from runhooks.summary.message import Summary
from runhooks.summary.writer import QueuedWriter


class SummaryPoint(NamedTuple):
    """One value that was written.

    Attributes:
        tag: Its tag; empty for a session log.
        kind: The kind of summary: ``"scalar"``, ``"histogram"`` and so on, or ``"session_log"``.
        step: Its step.
        wall_time: When it was added, in seconds since the epoch.
        value: A float for a scalar, a dict for hyperparameters, a ``SessionLog`` for a session
            log; else as in the points of an ``events.Run``.
    """

    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any


class PointSink(Sink):
    """A sink that makes points of what is written.

    Our scalars are taken as they were given; all else is decoded from its bytes.
    """

    def __init__(self) -> None:
        self._decoder = SummaryDecoder()

    @abstractmethod
    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        """Write ``points``, in order."""

    def write(self, batch: Batch) -> list[BaseException]:
        points: list[SummaryPoint] = []
        errors: list[BaseException] = []
        for is_message, items in itertools.groupby(zip(*batch, strict=True), key=_is_message):
            if is_message:
                self._decode(items, points, errors)
            else:
                _read(list(items), points, errors)
        try:
            self.write_points(points)
        except Exception as error:  # noqa: BLE001 (the caller of the writer gets it)
            add_note(error, f"up to {len(points)} values for {self.name} are lost")
            errors.append(error)
        return errors

    def _decode(
        self,
        items: Iterator[tuple[Any, ...]],
        points: list[SummaryPoint],
        errors: list[BaseException],
    ) -> None:
        for _, event, _, _ in items:
            try:
                points += list(self._points(event))
            except Exception as error:  # noqa: BLE001 (as above)
                add_note(error, f"a summary of step {event.step} for {self.name} is lost")
                errors.append(error)

    def _points(self, event: Event) -> Iterator[SummaryPoint]:
        at = event.step, event.wall_time
        if event.session_log is not None:
            log = SessionLog.FromString(_serialized(event.session_log))
            yield SummaryPoint("", SESSION_LOG, *at, log)
            return
        for tag, kind, value in self._values(event.summary):
            if kind != "hparams":
                yield SummaryPoint(tag, kind, *at, value)
            elif hparams := parse_hparams(value):  # or the record has none
                yield SummaryPoint(tag, kind, *at, hparams)

    def _values(self, summary: Any) -> Iterator[TaggedValue]:
        if not isinstance(summary, Summary):
            yield from self._decoder.decode(_serialized(summary))
            return
        for value in summary:
            if value.encode is encode_scalar:
                yield TaggedValue(value.tag, "scalar", _number(value.tag, value.data))
            else:
                yield from self._decoder.decode(Summary([value]).SerializeToString())


def _is_message(item: tuple[Any, ...]) -> bool:
    return item[0] is MESSAGE


def _serialized(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _read(
    items: list[tuple[Any, ...]], points: list[SummaryPoint], errors: list[BaseException]
) -> None:
    """Append the points of ``items``, which are scalars as they were given."""
    tags, values, steps, wall_times = zip(*items, strict=True)
    try:
        numbers = read_numbers(values).tolist()
        columns = zip(tags, map(index, steps), wall_times, numbers, strict=True)
        points += [SummaryPoint(tag, "scalar", *point) for tag, *point in columns]
    except Exception as error:  # noqa: BLE001 (as above)
        if len(items) == 1:
            add_note(error, f"while reading the scalar {tags[0]!r} of step {steps[0]}")
            errors.append(error)
        else:
            for item in items:
                _read([item], points, errors)


def _number(tag: str, value: Any) -> float:
    try:
        return read_number(value)
    except Exception as error:
        add_note(error, f"while reading the scalar {tag!r}")
        raise


class MemoryWriter(QueuedWriter):
    """Keeps everything in memory, decoded, for tests and notebooks.

    When a session restarts at a step, points from that step on are dropped, as by TensorBoard.
    """

    def __init__(self) -> None:
        self._memory = _Memory()
        super().__init__(WriteQueue(self._memory))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a MemoryWriter cannot be pickled, since another process has its own memory: use a "
            "JsonLinesWriter"
        )

    @property
    def points(self) -> list[SummaryPoint]:
        """All points in the order they were added. Raises the error of one that failed."""
        self.flush()
        return list(self._memory.points)

    def columns(self, tag: str) -> Scalars:
        """Return the points of the scalar ``tag``, as ``events.read`` does.

        Raises:
            KeyError: There is no such scalar; the message lists those that exist.
        """
        scalars = [point for point in self.points if point.kind == "scalar"]
        points = [point for point in scalars if point.tag == tag]
        if not points:
            tags = sorted({point.tag for point in scalars})
            raise KeyError(f"there is no scalar {tag!r}, there are {tags}")
        return Scalars(
            np.array([point.step for point in points], np.int64),
            np.array([point.value for point in points], np.float64),
            np.array([point.wall_time for point in points], np.float64),
        )


class _Memory(PointSink):
    name = "the memory writer"

    def __init__(self) -> None:
        super().__init__()
        self.points: list[SummaryPoint] = []

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        for point in points:
            if point.kind != SESSION_LOG:
                self.points.append(point)
            elif point.value.status == SessionStatus.START:
                self.points = [kept for kept in self.points if kept.step < point.step]


class JsonLinesWriter(QueuedWriter):
    """Appends a line to a file for each value.

    A line is an object with the fields of a ``SummaryPoint``. Images and sounds are objects whose
    ``encoded`` is a file in base64. NaN and infinities are the strings ``"NaN"``, ``"Infinity"``
    and ``"-Infinity"``. At a ``session_log`` with status ``START``, readers should drop earlier
    lines of its step and later ones.

    Only whole lines are written, even to a full disk, and by several processes to a local disk.

    Args:
        path: The file, which is created if missing.

    Raises:
        OSError: The file cannot be written.
        FileNotFoundError: In a later call, if it was deleted since.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = local_path(path=path)
        super().__init__(WriteQueue(_JsonLines(self._path)))

    def __reduce__(self) -> tuple[type[JsonLinesWriter], tuple[str]]:
        return JsonLinesWriter, (self._path,)


class _JsonLines(PointSink):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path).absolute()
        self.name = f"the file {str(self._path)!r}"
        self._file = self._open()

    @property
    def is_gone(self) -> bool:
        return self._file.closed or is_elsewhere(self._file, self._path)

    def open(self) -> None:
        before, self._file = self._file, self._open()
        before.close()

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        refuse_deleted(self._file, self._path)
        # In ASCII: to some readers, lines end at other characters too.
        lines = [json.dumps(json_point(point)) + "\n" for point in points]
        rest = text = memoryview("".join(lines).encode())
        size = os.fstat(self._file.fileno()).st_size
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # A part of a line would spoil the next.
            written = text[: len(text) - len(rest)].tobytes()
            self._file.truncate(size + written.rfind(b"\n") + 1)
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        self._file.close()

    def _open(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a line of another writer, or of a machine that stopped
                file.write(b"\n")
        return file


def json_point(point: SummaryPoint) -> dict[str, Any]:
    """Return ``point`` as an object of JSON."""
    return {**point._asdict(), "value": json_value(point.value)}
