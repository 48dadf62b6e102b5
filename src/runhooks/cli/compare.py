"""``runhooks compare``: one row per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from runhooks.cli import output
from runhooks.cli.output import Column
from runhooks.cli.runs import (
    Goal,
    Goals,
    Higher,
    Json,
    Lower,
    NamedRun,
    RunPaths,
    ScalarSummary,
    Tags,
    best_first,
    hparams_of,
    no_such,
    read_runs,
    summaries_of,
)


class _Row(NamedTuple):
    run: str
    path: str
    last_step: int | None
    duration_secs: float | None
    hparams: dict[str, Any]
    scalars: dict[str, ScalarSummary]


def compare(
    run: RunPaths,
    tag: Tags = None,
    lower: Lower = None,
    higher: Higher = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="TAG", help="The runs whose TAG is best come first."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N runs.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare the scalars of runs: one row per run.

    A hyper-parameter has a column if the runs differ in it. The column of a tag holds its last
    value; the column with an arrow its best value, the lowest or the highest, and the step of that.
    The best of each column is printed bold.
    """
    goals = Goals(lower, higher)
    rows = [_row(it, goals) for it in read_runs(run, tag, "scalar")]
    tags = {tag for row in rows for tag in row.scalars}
    goals.check(tags)
    if sort is not None:
        if sort not in tags:
            raise output.CommandError(f"--sort: {no_such('scalar', sort, sorted(tags), '')}")
        rows = best_first(rows, goals.decided(sort), lambda row: row.scalars.get(sort))
    count, rows = len(rows), rows[:limit]
    if json:
        output.write_json(rows)
        return
    _write(rows, goals)
    if len(rows) < count:
        output.say(f"the first {len(rows)} of {count} runs; leave out --limit to see all", "dim")


def _row(named: NamedRun, goals: Goals) -> _Row:
    path, hparams = str(named.run.path), hparams_of(named.run)
    summaries = summaries_of(named.run, goals)
    if not summaries:
        return _Row(named.name, path, None, None, hparams, {})
    first, last = min(it.first_time for it in summaries), max(it.last_time for it in summaries)
    step = max(it.last_step for it in summaries)
    by_tag = {it.tag: it for it in summaries}
    return _Row(named.name, path, step, last - first, hparams, by_tag)


def _write(rows: Sequence[_Row], goals: Goals) -> None:
    counts = Counter(tag for row in rows for tag in row.scalars)
    tags = sorted(counts, key=lambda tag: (-counts[tag], goals.of(tag) is None, tag))
    times = ["" if it.duration_secs is None else output.duration(it.duration_secs) for it in rows]
    steps = ["" if it.last_step is None else str(it.last_step) for it in rows]
    names = [row.run for row in rows]
    columns = [
        Column("run", output.short_names(names), left=True),
        Column("last step", steps, rank=1),
        Column("duration", times, rank=len(tags) + 3),
    ]
    common, different = _hparams([row.hparams for row in rows])
    for title, values in zip(output.short_titles([*different]), different.values(), strict=True):
        columns.append(Column(title, values, rank=2))
    for rank, (tag, title) in enumerate(zip(tags, output.short_titles(tags), strict=True), start=2):
        columns += _columns_of(title, [row.scalars.get(tag) for row in rows], goals.of(tag), rank)
    output.write_table(columns)
    if common:
        settings = [f"{output.tag(name)} {value}" for name, value in common.items()]
        output.say(f"in all runs: {', '.join(settings)}", style="dim")
    output.say_prefix(names)


def _hparams(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the hyper-parameters that all runs have in common, and by name those of each run."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row.get(name) for row in rows] for name in names}
    # By repr: NaN does not equal itself, and 1.0 equals True.
    same = [name for name, it in values.items() if len(set(map(repr, it))) == 1]
    common = {name: output.hparam(values[name][0]) for name in same}
    return common, {name: output.hparams(values[name]) for name in names if name not in common}


def _columns_of(
    name: str, summaries: Sequence[ScalarSummary | None], goal: Goal | None, rank: int
) -> list[Column]:
    last = ["" if it is None else output.number(it.last) for it in summaries]
    columns = [Column(name, last, rank)]
    if goal is not None:
        best = [None if it is None else it.best for it in summaries]
        known = [it.value for it in best if it is not None]
        record = (min if goal == "min" else max)(known, default=None)
        cells = ["" if it is None else output.at_step(*it) for it in best]
        styles = ["bold" if it is not None and it.value == record else "" for it in best]
        columns.append(Column(f"{name} {output.arrow(goal)}", cells, rank, styles=styles))
    return columns
