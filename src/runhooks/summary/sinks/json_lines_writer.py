"""``JsonLinesWriter``: summaries into a file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from runhooks.events.place import is_elsewhere, local_path, refuse_deleted
from runhooks.events.reading.table import json_value
from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.sinks.points import PointSink, SummaryPoint
from runhooks.summary.writer import QueuedWriter


class JsonLinesWriter(QueuedWriter):
    """Appends a line to a file for each value.

    A line is an object with the fields of a ``SummaryPoint``: ``tag``, ``kind``, ``step``,
    ``wall_time`` and ``value``. Images and sounds are objects whose ``encoded`` is a file in
    base64. NaN and infinities are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. A line
    of kind ``session_log`` with status ``START`` says that a session starts at its step; readers
    should drop earlier lines of that step and later ones.

    Only whole lines are written, also where the disk is full. Several processes may write to one
    file on a local disk.

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
            # The lines that fit stay; a part of one would spoil the next.
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
    """Return ``point`` as an object of JSON, under the names of its fields."""
    return {**point._asdict(), "value": json_value(point.value)}
