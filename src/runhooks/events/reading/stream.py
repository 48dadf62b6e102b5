"""``stream``: the points of event files one by one."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, NamedTuple

from runhooks.events.place import place
from runhooks.events.reading.blocks import Block, RecordReader
from runhooks.events.reading.event_decoder import Decoded, EventDecoder, Log, OtherPoint
from runhooks.events.reading.find import find_runs
from runhooks.events.reading.messages import SCALAR, SESSION_LOG, TagNumbers, TagRegistry, Wanted
from runhooks.events.reading.rows import RowDecoders
from runhooks.events.reading.values import decode_message
from runhooks.stores.path import AnyPath, path_of

#: How long to wait before somebody looks for new points again.
POLL_SECS = 0.5


class StreamPoint(NamedTuple):
    """One point of a run. ``value``: a float if ``kind`` is scalar, else see ``Run``.

    If ``kind`` is ``session_log``, the tag is empty and the value a ``SessionLog``.
    """

    run: str
    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any


# In place of ``StreamPoint._make``: no code of Python runs for a point.
_point_of = functools.partial(tuple.__new__, StreamPoint)


def stream(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    follow: bool = False,
) -> Iterator[StreamPoint]:
    """Yield the points in ``path``, run by run, in the order of the files, without keeping them.

    Damaged or malformed values and unreadable files are skipped. Points that a later session
    repeated are included.

    Args:
        path: An event file, a run directory, or a directory above runs.
        tags: Names or shell patterns of tags, as for ``read``.
        kinds: Kinds, as for ``read``. Session logs are included only if ``"session_log"`` is among
            them.
        follow: Whether to continue forever, checking for new points and runs twice a second. A file
            that was replaced, or is shorter than before, is read again.

    Raises:
        FileNotFoundError: If there is nothing at ``path``.
        ValueError: If a kind is unknown.
        OSError: If ``path`` is a file that cannot be read, or in a store that does not answer.
    """
    reader = StreamReader(path_of(place(path=path)), Wanted(tags, kinds))
    return _stream(reader, follow)


def _stream(reader: StreamReader, follow: bool) -> Iterator[StreamPoint]:
    yield from reader.new()
    while follow:
        time.sleep(POLL_SECS)
        yield from reader.new()


class StreamReader:
    """Reads the points in ``path`` that were added since it was asked last.

    Raises as ``stream``.
    """

    def __init__(self, path: AnyPath, wanted: Wanted) -> None:
        find_runs(path)  # raises now, not at the first point
        self._path = path
        self._rows = RowDecoders(TagNumbers(wanted))
        self._registries: dict[str, TagRegistry] = {}
        self._files: dict[AnyPath, _StreamedFile] = {}

    def new(self) -> Iterator[StreamPoint]:
        """Yield the new points, run by run. Raises OSError if the path cannot be read."""
        for piece in self._pieces():
            yield from piece

    def _pieces(self) -> Iterator[Iterable[StreamPoint]]:
        """Yield the points, many at a time."""
        for run, found in find_runs(self._path).runs.items():
            registry = self._registries.setdefault(run, TagRegistry(self._rows.numbers))
            for file in found.files:
                known = self._files.get(file)
                if known is None or known.is_replaced(file):
                    known = self._files[file] = _StreamedFile(run, file, registry, self._rows)
                with suppress(*([] if found.is_file else [OSError])):
                    yield from known.pieces()


class _StreamedFile:
    def __init__(self, run: str, path: AnyPath, registry: TagRegistry, rows: RowDecoders) -> None:
        self._run = run
        self._registry = registry
        self._records = RecordReader(path)
        self._decoder = EventDecoder(registry, rows)

    def is_replaced(self, path: AnyPath) -> bool:
        return self._records.is_replaced(path)

    def pieces(self) -> Iterator[Iterable[StreamPoint]]:
        for block in self._records.blocks():
            decoded = self._decoder.decode(block)
            end = 0
            for record, point in self._others(block, decoded):
                begin, end = end, int(decoded.scalars.first[record])
                yield self._scalars(decoded, begin, end)
                yield (point,)
            yield self._scalars(decoded, end, len(decoded.scalars.ids))

    def _scalars(self, decoded: Decoded, begin: int, end: int) -> Iterable[StreamPoint]:
        ids, steps, values, wall_times, _ = decoded.scalars
        columns = (column[begin:end].tolist() for column in (ids, steps, wall_times, values))
        tag_ids, *numbers = columns
        tags = map(self._registry.numbers.names.__getitem__, tag_ids)
        rows = zip(repeat(self._run), tags, repeat(SCALAR), *numbers, strict=False)
        return map(_point_of, rows)

    def _others(self, block: Block, decoded: Decoded) -> list[tuple[int, StreamPoint]]:
        """Return the other points, each with the record that it is in, in order."""
        found = []
        for point in decoded.points:
            tag = self._registry.numbers.names[point.tag_id]
            message = bytes(memoryview(block.data)[point.begin : point.end])
            with suppress(ValueError):
                value = decode_message(message, point.kind, self._registry.metadata(tag))
                found.append((point.record, self._point(point, tag, point.kind, value)))
        if self._registry.numbers.wanted.named_kind(SESSION_LOG):
            for log in decoded.logs:
                found.append((log.record, self._point(log, "", SESSION_LOG, log.log)))
            found.sort(key=lambda pair: pair[0])
        return found

    def _point(self, of: OtherPoint | Log, tag: str, kind: str, value: Any) -> StreamPoint:
        return StreamPoint(self._run, tag, kind, of.step, of.wall_time, value)
