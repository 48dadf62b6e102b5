"""``runhooks tail``: what runs write, as they write it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from runhooks import events
from runhooks.cli import formats, output
from runhooks.cli.new_points import NewPoints, Row
from runhooks.cli.parameters import Json, RunPath, Tags
from runhooks.cli.progress import progress
from runhooks.cli.runs import check_exists, mention_damage, missing_tags

_PERIOD_SECS = 0.5
_ROWS_BEFORE = 10


def tail(run: RunPath, tag: Tags = None, json: Json = False) -> None:
    """Print scalars as they are written.

    It begins with the last ten steps that are there and ends at Ctrl-C. With --json each line is an
    object of one value.
    """
    check_exists(run)
    with progress(run):
        runs = events.read(run, tags=tag, kinds="scalar")
    for message in missing_tags(runs.values(), [run], tag, "scalar"):
        output.complain(f"{message}; waiting for it")
    if not runs:
        output.complain(f"there is no event file in {run} yet; waiting for one")
    elif not tag and not any(it.scalars for it in runs.values()):
        output.complain(f"there is no scalar in {run} yet; waiting for one")
    known = 0
    for rows in _batches(runs):
        mention_damage(run, runs.damages[known:])
        known = len(runs.damages)
        if json:
            output.write_json_lines(_objects(rows))
        else:
            _write(rows, several=list(runs) not in ([], ["."]))


def _batches(runs: events.Runs) -> Iterator[list[Row]]:
    new = NewPoints(runs)
    yield new.take(_ROWS_BEFORE)
    while True:
        time.sleep(_PERIOD_SECS)
        runs.update()
        yield new.take()


def _objects(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    for row in rows:
        about = {"run": row.run, "step": row.step, "wall_time": row.wall_time}
        if row.started:
            yield {**about, "session_log": "START"}
        for tag, value in row.values.items():
            yield {**about, "tag": tag, "value": value}


def _write(rows: Sequence[Row], several: bool) -> None:
    for row in rows:
        start = f"{formats.time_of_day(row.wall_time)} {row.step:>8}"
        line = Text(f"{start}  {formats.printable(row.run)}" if several else start)
        if row.started:
            line.append("  a session starts", "dim")
        _append(line, row)
        output.write(line)


def _append(line: Text, row: Row) -> None:
    room, indent, used = output.width(), cell_len(line.plain), cell_len(line.plain)
    for tag, value in row.values.items():
        name, number = formats.tag(tag), formats.number(value)
        width = cell_len(name) + len(number) + 3
        if room is not None and used > indent and used + width > room:
            line.append("\n" + " " * indent)
            used = indent
        line.append("  ").append(name, "dim").append(f" {number}")
        used += width
