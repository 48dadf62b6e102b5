"""``JsonLinesWriter``: summaries into a file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from runhooks.events.deleted import is_elsewhere, refuse_deleted
from runhooks.events.local_path import local_path
from runhooks.events.write_queue import WriteQueue
from runhooks.summary.sinks.json_value import json_point
from runhooks.summary.sinks.point import SummaryPoint
from runhooks.summary.sinks.point_sink import PointSink
from runhooks.summary.sinks.point_writer import PointWriter

_BLOCK = 1 << 16
_BEGIN = b'{"tag"'  # of each line
_BEGINS = {_BEGIN[:length] for length in range(len(_BEGIN) + 1)}


class JsonLinesWriter(PointWriter):
    """Appends a line for each value to the file ``path``, which it makes if it is missing.

    A line is an object with ``tag``, ``kind``, ``step``, ``wall_time`` (seconds since the epoch)
    and ``value``, as ``SummaryPoint`` says: images and sounds are objects whose ``encoded`` is a
    file in base64. NaN and infinities are the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"``. A line of kind ``session_log`` and status ``START`` says that a session starts
    at its step: what earlier lines say of that step and later ones does not count any more.

    There are only ever whole lines in the file: the rest of one that is cut off, which a writer
    left that was killed, is removed. Several processes may write to one file on a local disk.

    Raises OSError if the file cannot be written, ValueError if it holds something else; a later
    call raises FileNotFoundError if it was deleted since.
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
        self._file = self._open()

    @property
    def name(self) -> str:
        return f"the file {str(self._path)!r}"

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
        rest = memoryview("".join(lines).encode())
        size = os.fstat(self._file.fileno()).st_size
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.truncate(size)
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        self._file.close()

    def _open(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        try:
            _end_last_line(file)
        except ValueError:
            file.close()
            raise
        return file


def _end_last_line(file: FileIO) -> None:
    """Make ``file`` end with a whole line; one that is cut off, and no JSON, is removed.

    Raises ValueError, naming the file, if it is none of JSON lines.
    """
    file.seek(0)
    first, newline, _ = file.read(_BLOCK).partition(b"\n")
    end = _end_of_lines(file)
    file.seek(end)
    last = file.read()
    torn = last and not _is_object(last)
    if (newline and not _is_object(first)) or (torn and last[: len(_BEGIN)] not in _BEGINS):
        raise ValueError(
            f"path must be a file of JSON lines, got {str(file.name)!r}, which is none"
        )
    if torn:
        file.truncate(end)
    elif last:
        file.write(b"\n")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _end_of_lines(file: FileIO) -> int:
    """Return where the last whole line of ``file`` ends."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
