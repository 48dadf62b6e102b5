"""``runhooks tail``: what runs write, as they write it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from runhooks import events
from runhooks.cli import formats, output
from runhooks.cli.runs import Json, RunPath, Tags, check_exists, mention_damage, missing_tags
from runhooks.stores.path import AnyPath

_PERIOD_SECS = 0.5
_ROWS_BEFORE = 10


def tail(run: RunPath, tag: Tags = None, json: Json = False) -> None:
    """Print scalars as they are written.

    Starts with the last ten steps and ends at Ctrl-C. With --json each line is an object with one
    value.
    """
    check_exists(run)
    with output.progress(run):
        runs = events.read(run, tags=tag, kinds="scalar")
    for message in missing_tags(runs.values(), [run], tag, "scalar"):
        output.complain(f"{message}; waiting for it")
    if not runs:
        output.complain(f"there is no event file in {run} yet; waiting for one")
    elif not tag and not any(it.scalars for it in runs.values()):
        output.complain(f"there is no scalar in {run} yet; waiting for one")
    mentioned: set[events.Damage] = set()
    for rows in _batches(run, runs):
        mention_damage(run, [it for it in runs.damages if it not in mentioned])
        mentioned.update(runs.damages)
        if json:
            output.write_json_lines(_objects(rows))
        else:
            _write(rows, several=list(runs) not in ([], ["."]))


class _Row(NamedTuple):
    """The values that a run wrote at one step, by tag, or the start of a session there.

    ``wall_time``: of the first of them, in seconds since the epoch.
    """

    run: str
    step: int
    wall_time: float
    values: dict[str, float]
    started: bool = False


class _Point(NamedTuple):
    wall_time: float
    run: str
    step: int
    tag: str | None  # None: a session started
    value: float


def _batches(path: AnyPath, runs: events.Runs) -> Iterator[list[_Row]]:
    new = _NewPoints(runs)
    yield new.take(_ROWS_BEFORE)
    fault: str | None = None
    while True:
        time.sleep(_PERIOD_SECS)
        try:
            runs.update()
        except OSError as error:
            before, fault = fault, error.strerror or "it was removed"
            if fault != before:
                output.complain(f"{path} cannot be read: {fault}; waiting for it")
        else:
            fault = None
            yield new.take()


class _NewPoints:
    """The points and the starts of sessions that have been added to ``runs``."""

    def __init__(self, runs: events.Runs) -> None:
        self._runs = runs
        self._seen: dict[tuple[str, str], events.Scalars] = {}
        self._starts_seen: dict[str, list[events.Point]] = {}

    def take(self, most: int | None = None) -> list[_Row]:
        """Return what is new since the last call, by time; of it the last ``most`` rows."""
        points = [point for run in self._runs.values() for point in self._of(run, most)]
        rows = _rows(sorted(points, key=lambda point: point.wall_time))
        return rows if most is None else rows[-most:]

    def _of(self, run: events.Run, most: int | None) -> Iterator[_Point]:
        starts = [it for it in run.session_logs if it.value.status == events.SessionStatus.START]
        seen_starts = self._starts_seen.get(run.name, ())
        new_starts = [it for it in starts if it not in seen_starts]
        self._starts_seen[run.name] = starts
        for it in new_starts:
            yield _Point(it.wall_time, run.name, it.step, None, 0.0)
        restart = min((it.step for it in new_starts), default=None)
        for tag, scalars in run.scalars.items():
            seen = self._seen.get((run.name, tag))
            self._seen[run.name, tag] = scalars
            new = slice(None) if seen is None else _new(scalars, seen, restart)
            last = slice(None) if most is None else slice(-most, None)  # a row has one of a tag
            columns = [column[new][last].tolist() for column in scalars]
            for step, value, wall_time in zip(*columns, strict=True):
                yield _Point(wall_time, run.name, step, tag, value)


def _new(
    scalars: events.Scalars, seen: events.Scalars, restart: int | None
) -> slice | NDArray[np.bool_]:
    """Return which of ``scalars`` are new. ``restart``: the step a session went back to, if any."""
    if restart is not None:  # it discarded what was seen from there on
        return slice(int(np.count_nonzero(seen.steps < restart)), None)
    known = len(seen.steps)
    if np.array_equal(seen.wall_times, scalars.wall_times[:known]):
        return slice(known, None)
    return ~np.isin(scalars.wall_times, seen.wall_times)  # a file was replaced or removed


def _rows(points: Sequence[_Point]) -> list[_Row]:
    rows: list[_Row] = []
    latest: dict[str, _Row] = {}
    for point in points:
        row = latest.get(point.run)
        if row is None or row.step != point.step or row.started or point.tag in (None, *row.values):
            row = _Row(point.run, point.step, point.wall_time, {}, started=point.tag is None)
            rows.append(row)
            latest[point.run] = row
        if point.tag is not None:
            row.values[point.tag] = point.value
    return rows


def _objects(rows: Sequence[_Row]) -> Iterator[dict[str, object]]:
    for row in rows:
        about = {"run": row.run, "step": row.step, "wall_time": row.wall_time}
        if row.started:
            yield {**about, "session_log": "START"}
        for tag, value in row.values.items():
            yield {**about, "tag": tag, "value": value}


def _write(rows: Sequence[_Row], several: bool) -> None:
    for row in rows:
        start = f"{formats.time_of_day(row.wall_time)} {row.step:>8}"
        line = Text(f"{start}  {formats.printable(row.run)}" if several else start)
        if row.started:
            line.append("  a session starts", "dim")
        _append(line, row)
        output.write(line)
    sys.stdout.flush()


def _append(line: Text, row: _Row) -> None:
    room, indent, used = output.width(), cell_len(line.plain), cell_len(line.plain)
    for tag, value in row.values.items():
        name, number = formats.tag(tag), formats.number(value)
        width = cell_len(name) + len(number) + 3
        if room is not None and used > indent and used + width > room:
            line.append("\n" + " " * indent)
            used = indent
        line.append("  ").append(name, "dim").append(f" {number}")
        used += width
