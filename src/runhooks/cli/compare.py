"""``runhooks compare``: one row a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from runhooks.cli import formats, output
from runhooks.cli.goals import Goal, Goals
from runhooks.cli.names import say_begin, short_names, short_titles
from runhooks.cli.parameters import Higher, Json, Lower, RunPaths, Tags
from runhooks.cli.runs import read_runs
from runhooks.cli.summary import ScalarSummary, summarized
from runhooks.cli.table import Column, write_table


class _Row(NamedTuple):
    run: str
    path: str
    last_step: int | None
    duration_secs: float | None
    scalars: dict[str, ScalarSummary]


def compare(
    run: RunPaths, tag: Tags = None, lower: Lower = None, higher: Higher = None, json: Json = False
) -> None:
    """Compare the scalars of runs: one row a run.

    Under a tag stands its last value; under a tag with an arrow its best value and the step of
    that: the lowest or the highest. The best of each column is printed bold.
    """
    goals = Goals(lower, higher)
    rows = [
        _row(it.name, str(it.run.path), [
            summarized(name, scalars, goals.of(name))
            for name, scalars in it.run.scalars.items()
            if len(scalars.steps)
        ])
        for it in read_runs(run, tag, "scalar")
    ]  # fmt: skip
    goals.check({tag for row in rows for tag in row.scalars})
    if json:
        output.write_json(rows)
    else:
        _write(rows, goals)


def _row(name: str, path: str, summaries: Sequence[ScalarSummary]) -> _Row:
    if not summaries:
        return _Row(name, path, None, None, {})
    first, last = min(it.first_time for it in summaries), max(it.last_time for it in summaries)
    step = max(it.last_step for it in summaries)
    return _Row(name, path, step, last - first, {it.tag: it for it in summaries})


def _write(rows: Sequence[_Row], goals: Goals) -> None:
    common = Counter(tag for row in rows for tag in row.scalars)
    tags = sorted(common, key=lambda tag: (-common[tag], goals.of(tag) is None, tag))
    long = ["" if it.duration_secs is None else formats.duration(it.duration_secs) for it in rows]
    steps = ["" if it.last_step is None else str(it.last_step) for it in rows]
    names = [row.run for row in rows]
    columns = [
        Column("run", short_names(names), left=True),
        Column("last step", steps, rank=1),
        Column("long", long, rank=len(tags) + 3),
    ]
    for rank, (tag, title) in enumerate(zip(tags, short_titles(tags), strict=True), start=2):
        columns += _columns_of(title, [row.scalars.get(tag) for row in rows], goals.of(tag), rank)
    write_table(columns)
    say_begin(names)


def _columns_of(
    name: str, summaries: Sequence[ScalarSummary | None], goal: Goal | None, rank: int
) -> list[Column]:
    last = ["" if it is None else formats.number(it.last) for it in summaries]
    columns = [Column(name, last, rank)]
    if goal is not None:
        known = [it.best.value for it in summaries if it is not None and it.best is not None]
        record = None if not known else min(known) if goal == "min" else max(known)
        best = [None if it is None else it.best for it in summaries]
        cells = ["" if it is None else formats.at_step(*it) for it in best]
        styles = ["bold" if it is not None and it.value == record else "" for it in best]
        title = f"{name} {output.arrow(goal)}"
        columns.append(Column(title, cells, rank, styles=styles))
    return columns
