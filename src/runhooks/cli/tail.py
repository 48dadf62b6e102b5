"""``runhooks tail``: what runs write, as they write it."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from runhooks.cli import output
from runhooks.cli.runs import Json, RunPath, Tags, check_exists
from runhooks.events import SessionStatus, StreamPoint
from runhooks.events.reading.messages import SCALAR, SESSION_LOG, Wanted
from runhooks.events.reading.stream import POLL_SECS, StreamReader

_ROWS_BEFORE = 10


def tail(run: RunPath, tag: Tags = None, json: Json = False) -> None:
    """Print scalars as they are written.

    Starts with the last ten steps and ends at Ctrl-C. With --json each line is an object with one
    value.
    """
    check_exists(run)
    reader = StreamReader(run, Wanted(tag, (SCALAR, SESSION_LOG)))
    with output.progress(run):
        rows = _last(_rows(reader.new()))
    if not rows:
        wanted = f"scalar {' or '.join(tag)}" if tag else "scalar"
        output.complain(f"there is no {wanted} in {run} yet; waiting for one")
    fault = None
    while True:
        if json:
            for it in _objects(rows):
                output.write_json(it, in_one_line=True)
        else:
            _write(rows)
        sys.stdout.flush()
        time.sleep(POLL_SECS)
        rows = []
        try:
            rows += sorted(_rows(reader.new()), key=lambda row: row.wall_time)
            fault = None
        except OSError as error:
            before, fault = fault, error.strerror or "it was removed"
            if fault != before:
                output.complain(f"{run} cannot be read: {fault}; waiting for it")


class _Row(NamedTuple):
    """What a run wrote at one step, or the start of a session there."""

    run: str
    step: int
    wall_time: float  # of the first, in seconds since the epoch
    values: dict[str, float]
    started: bool = False


def _rows(points: Iterable[StreamPoint]) -> Iterator[_Row]:
    row: _Row | None = None
    for point in points:
        starts = point.kind == SESSION_LOG
        if starts and point.value.status != SessionStatus.START:
            continue
        if (
            row is None
            or (row.run, row.step) != (point.run, point.step)
            or row.started
            or starts
            or point.tag in row.values
        ):
            if row is not None:
                yield row
            row = _Row(point.run, point.step, point.wall_time, {}, starts)
        if not starts:
            row.values[point.tag] = point.value
    if row is not None:
        yield row


def _last(rows: Iterable[_Row]) -> list[_Row]:
    found = heapq.nlargest(_ROWS_BEFORE, enumerate(rows), lambda it: (it[1].wall_time, it[0]))
    return [row for _, row in reversed(found)]


def _objects(rows: Sequence[_Row]) -> Iterator[dict[str, object]]:
    for row in rows:
        about = {"run": row.run, "step": row.step, "wall_time": row.wall_time}
        if row.started:
            yield {**about, "session_log": "START"}
        for tag, value in row.values.items():
            yield {**about, "tag": tag, "value": value}


def _write(rows: Sequence[_Row]) -> None:
    for row in rows:
        time_of_day = output.date(row.wall_time).rpartition(" ")[2]
        start = f"{time_of_day} {row.step:>8}"
        line = Text(f"{start}  {output.printable(row.run)}" if row.run != "." else start)
        if row.started:
            line.append("  a session starts", "dim")
        _append(line, row.values)
        output.write(line)


def _append(line: Text, values: dict[str, float]) -> None:
    room = output.width()
    indent = used = cell_len(line.plain)
    for tag, value in values.items():
        name, number = output.tag(tag), output.number(value)
        width = cell_len(name) + len(number) + 3
        if room is not None and used > indent and used + width > room:
            line.append("\n" + " " * indent)
            used = indent
        line.append("  ").append(name, "dim").append(f" {number}")
        used += width
