"""``stream``: points one by one."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, NamedTuple

from runhooks.events.place import place
from runhooks.events.reading.blocks import Block, RecordReader
from runhooks.events.reading.contents import BlockContents
from runhooks.events.reading.find import find_runs
from runhooks.events.reading.messages import SCALAR, SESSION_LOG, TagMetadata, Wanted
from runhooks.events.reading.rows import RowDecoders, ScalarColumns
from runhooks.events.reading.values import decode_message
from runhooks.stores.path import AnyPath, path_of

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


# Unlike ``StreamPoint._make`` no code of Python runs for a point.
_point_of = functools.partial(tuple.__new__, StreamPoint)


def stream(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    follow: bool = False,
) -> Iterator[StreamPoint]:
    """Yield the points in ``path``, run by run, in the order of the files, without keeping them.

    Arguments, and FileNotFoundError, ValueError and OSError, are as for ``read``, but session logs
    need ``"session_log"`` among the kinds. What cannot be read is skipped; points that a later
    session repeated are not. With ``follow`` it continues forever, checking for new points and runs
    twice a second. Replaced files are read again.
    """
    reader = StreamReader(path_of(place(path=path)), Wanted(tags, kinds))
    return _stream(reader, follow)


def _stream(reader: StreamReader, follow: bool) -> Iterator[StreamPoint]:
    yield from reader.new()
    while follow:
        time.sleep(POLL_SECS)
        yield from reader.new()


class StreamReader:
    def __init__(self, path: AnyPath, wanted: Wanted) -> None:
        find_runs(path)  # raises now, not at the first point
        self._path = path
        self._rows = RowDecoders(wanted)
        self._metadata: dict[str, TagMetadata] = {}
        self._files: dict[AnyPath, RecordReader] = {}

    def new(self) -> Iterator[StreamPoint]:
        return chain.from_iterable(self._pieces())

    def _pieces(self) -> Iterator[Iterable[StreamPoint]]:
        runs, _ = find_runs(self._path)
        for run, found in runs.items():
            metadata = self._metadata.setdefault(run, TagMetadata())
            for file in found.files:
                known = self._files.get(file)
                if known is None or known.is_replaced(file):
                    known = self._files[file] = RecordReader(file)
                with suppress(*([] if found.is_file else [OSError])):
                    for block in known.blocks():
                        yield from self._pieces_of(run, block, metadata)

    def _pieces_of(
        self, run: str, block: Block, metadata: TagMetadata
    ) -> Iterator[Iterable[StreamPoint]]:
        found = BlockContents(block, self._rows, metadata)
        end = 0
        for record, point in self._others(run, block, found, metadata):
            begin, end = end, int(found.scalars.first[record])
            yield self._scalars(run, found.scalars, begin, end)
            yield (point,)
        yield self._scalars(run, found.scalars, end, len(found.scalars.ids))

    def _scalars(
        self, run: str, scalars: ScalarColumns, begin: int, end: int
    ) -> Iterable[StreamPoint]:
        ids, steps, values, wall_times = (it[begin:end].tolist() for it in scalars[:4])
        tags = map(self._rows.wanted.names.__getitem__, ids)
        columns = zip(repeat(run), tags, repeat(SCALAR), steps, wall_times, values, strict=False)
        return map(_point_of, columns)

    def _others(
        self, run: str, block: Block, found: BlockContents, metadata: TagMetadata
    ) -> list[tuple[int, StreamPoint]]:
        others = []
        for at in found.points:
            message = bytes(memoryview(block.data)[at.begin : at.end])
            with suppress(ValueError):
                value = decode_message(message, at.kind, metadata)
                point = StreamPoint(run, at.tag, at.kind, at.step, at.wall_time, value)
                others.append((at.record, point))
        if self._rows.wanted.named_kind(SESSION_LOG):
            for record, log in found.logs:
                others.append((record, StreamPoint(run, "", SESSION_LOG, *log)))
            others.sort(key=lambda pair: pair[0])
        return others
