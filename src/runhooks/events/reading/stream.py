"""``stream``: the points of event files one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from runhooks.events.reading.event_decoder import Decoded, EventDecoder
from runhooks.events.reading.find import find_runs
from runhooks.events.reading.kinds import SCALAR, SESSION_LOG
from runhooks.events.reading.one_by_one import Log, OtherPoint
from runhooks.events.reading.record_reader import Block, RecordReader
from runhooks.events.reading.tag_registry import TagRegistry, Wanted
from runhooks.events.reading.values import decode_message

_POLL_SECS = 0.5


class StreamPoint(NamedTuple):
    """One point of a run. ``value``: a float if ``kind`` is scalar, else as said at ``Run``.

    Of kind ``session_log``: the tag is empty, and the value a ``SessionLog``.
    """

    run: str
    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any


def stream(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    follow: bool = False,
) -> Iterator[StreamPoint]:
    """Yield the points at ``path``, run by run, in the order of the files; none is kept.

    ``path``, ``tags``, ``kinds``: as for ``read``. Points of kind ``session_log`` come if ``kinds``
    names it. Nothing is purged; damage, and values that make no sense, are skipped. ``follow``:
    never end, but look twice a second for what was written since, new runs too; a file that was
    replaced, or is shorter than it was, comes anew.

    Raises FileNotFoundError if there is nothing at ``path``; ValueError for an unknown kind.
    """
    wanted = Wanted(tags, kinds)
    find_runs(Path(path))  # what is wrong with it is raised now, not at the first point
    return _stream(Path(path), wanted, follow)


def _stream(path: Path, wanted: Wanted, follow: bool) -> Iterator[StreamPoint]:
    registries: dict[str, TagRegistry] = {}
    files: dict[Path, _StreamedFile] = {}
    while True:
        for run, found in find_runs(path).items():
            registry = registries.setdefault(run, TagRegistry(wanted))
            for file in found.files:
                if file not in files or files[file].is_replaced():
                    files[file] = _StreamedFile(run, file, registry)
                yield from files[file].points()
        if not follow:
            return
        time.sleep(_POLL_SECS)


class _StreamedFile:
    def __init__(self, run: str, path: Path, registry: TagRegistry) -> None:
        self._run = run
        self._registry = registry
        self._records = RecordReader(path)
        self._decoder = EventDecoder(registry)

    def is_replaced(self) -> bool:
        return self._records.is_replaced()

    def points(self) -> Iterator[StreamPoint]:
        for block in self._records.blocks():
            decoded = self._decoder.decode(block)
            end = 0
            for record, point in self._others(block, decoded):
                begin, end = end, int(decoded.scalars.first[record])
                yield from self._scalars(decoded, begin, end)
                yield point
            yield from self._scalars(decoded, end, len(decoded.scalars.ids))

    def _scalars(self, decoded: Decoded, begin: int, end: int) -> Iterator[StreamPoint]:
        ids, steps, values, wall_times, _ = decoded.scalars
        columns = (column[begin:end].tolist() for column in (ids, steps, wall_times, values))
        names = self._registry.names
        for tag_id, step, wall_time, value in zip(*columns, strict=True):
            yield StreamPoint(self._run, names[tag_id], SCALAR, step, wall_time, value)

    def _others(self, block: Block, decoded: Decoded) -> list[tuple[int, StreamPoint]]:
        """Return what is no scalar, and in which record it is, in order."""
        found = []
        for point in decoded.points:
            tag = self._registry.names[point.tag_id]
            message = bytes(memoryview(block.data)[point.begin : point.end])
            with suppress(ValueError):
                value = decode_message(message, point.kind, self._registry.metadata(tag))
                found.append((point.record, self._point(point, tag, point.kind, value)))
        if self._registry.wanted.named_kind(SESSION_LOG):
            for log in decoded.logs:
                found.append((log.record, self._point(log, "", SESSION_LOG, log.log)))
            found.sort(key=lambda pair: pair[0])
        return found

    def _point(self, of: OtherPoint | Log, tag: str, kind: str, value: Any) -> StreamPoint:
        return StreamPoint(self._run, tag, kind, of.step, of.wall_time, value)
