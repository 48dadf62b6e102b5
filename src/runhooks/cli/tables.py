"""``runhooks show`` and ``runhooks compare``: runs in tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from runhooks import clock, events
from runhooks.cli import output
from runhooks.cli.output import Column
from runhooks.cli.plot import sparkline
from runhooks.cli.runs import (
    Higher,
    Json,
    Lower,
    NamedRun,
    RunPath,
    RunPaths,
    Tags,
    hparams_of,
    no_such,
    read_runs,
)
from runhooks.cli.summary import Extreme, Goal, Goals, ScalarSummary, best_first, summaries_of
from runhooks.events.reading.messages import KINDS
from runhooks.stores.path import AnyPath

_FEW_RUNS = 10


def show(
    run: RunPath, tag: Tags = None, lower: Lower = None, higher: Higher = None, json: Json = False
) -> None:
    """Show the tags of a run: their kinds, steps and values.

    More than ten runs get one row each. An arrow marks the best value, the lowest or the highest.
    """
    goals = Goals(lower, higher)
    runs = read_runs([run], tag)
    goals.check({tag for it in runs for tag in it.run.scalars})
    if json:
        output.write_json({"path": run, "runs": [_as_json(it, goals) for it in runs]})
    elif len(runs) > _FEW_RUNS:
        _write_overview(runs)
    else:
        for index, it in enumerate(runs):
            if index:
                output.write()
            _write_run(it, goals)


def _as_json(named: NamedRun, goals: Goals) -> dict[str, Any]:
    run = named.run
    return {
        "run": named.name,
        "path": run.path,
        "files": run.files,
        "hparams": hparams_of(run),
        "scalars": summaries_of(run, goals),
        "others": _others(run),
        "damages": run.damages,
    }


def _write_run(named: NamedRun, goals: Goals) -> None:
    run = named.run
    output.say(_heading(named))
    if hparams := hparams_of(run):
        output.write()
        names, values = output.shortened([*hparams]), map(output.hparam, hparams.values())
        columns = {"hyper-parameter": names, "value": [*values]}
        output.write_table([Column(title, cells, left=True) for title, cells in columns.items()])
    summaries = summaries_of(run, goals)
    if summaries:
        output.write()
        _write_scalars(run, summaries)
    if others := _others(run):
        output.write()
        _write_others(others)
    if not (hparams or summaries or others):
        output.say("it has no values yet")


def _heading(named: NamedRun) -> str:
    files = named.run.files
    parts = [output.count(len(files), "file"), output.size(sum(map(_size, files)))]
    if times := _times(named.run):
        first, last = times
        age = clock.wall() - last
        ago = f" ({output.duration(age)} ago)" if age >= 0 else ""
        date = output.unbroken(output.date(last) + ago)
        parts += [f"spans {output.duration(last - first)}", f"last point {date}"]
    name = named.run.path if named.name == "." else named.name
    return f"{output.printable(name)}: {', '.join(parts)}"


def _size(file: AnyPath) -> int:
    try:
        return file.stat().st_size
    except OSError:  # removed since
        return 0


def _others(run: events.Run) -> list[dict[str, Any]]:
    found = [
        {
            "tag": tag,
            "kind": kind,
            "points": len(points),
            "first_step": int(points.steps.min()),
            "last_step": int(points.steps.max()),
        }
        for kind, tag, points in _points(run)
    ]
    return sorted(found, key=lambda row: (row["tag"], row["kind"]))


def _points(run: events.Run) -> list[tuple[str, str, events.Points]]:
    kinds = [kind for kind in KINDS if kind not in ("scalar", "hparams")]
    found = [(kind, tag, points) for kind in kinds for tag, points in run.points(kind).items()]
    return [it for it in found if len(it[2])]


def _write_scalars(run: events.Run, summaries: Sequence[ScalarSummary]) -> None:
    non_finite = [str(it.non_finite or "") for it in summaries]
    columns = [
        Column("scalar", output.shortened([it.tag for it in summaries]), left=True),
        Column("points", [str(it.points) for it in summaries], rank=4),
        Column("steps", [output.span(it.first_step, it.last_step) for it in summaries], rank=1),
        Column("first", [output.number(it.first) for it in summaries], rank=3),
        Column("last", [output.number(it.last) for it in summaries]),
        Column("min", [_extreme(it.min) for it in summaries], rank=5),
        Column("max", [_extreme(it.max) for it in summaries], rank=6),
        Column("best", [_best(it) for it in summaries], rank=2),
        Column("nan/inf", non_finite, styles=["red"] * len(summaries)),
    ]
    curves = [run.scalars[it.tag] for it in summaries]
    output.write_table(columns, lambda row, width: sparkline(curves[row], width))


def _extreme(extreme: Extreme | None) -> str:
    return "" if extreme is None else f"{output.number(extreme.value)} @{extreme.step}"


def _best(summary: ScalarSummary) -> str:
    if summary.best is None or summary.goal is None:
        return ""
    return f"{output.arrow(summary.goal)} {_extreme(summary.best)}"


def _write_others(others: Sequence[dict[str, Any]]) -> None:
    spans = [output.span(it["first_step"], it["last_step"]) for it in others]
    output.write_table(
        [
            Column("other", output.shortened([it["tag"] for it in others]), left=True),
            Column("kind", [it["kind"] for it in others], left=True),
            Column("points", [str(it["points"]) for it in others], rank=1),
            Column("steps", spans, rank=2),
        ]
    )


def _write_overview(runs: Sequence[NamedRun]) -> None:
    steps = [[it.steps for it in _columns(named.run)] for named in runs]
    last = [max((int(it.max()) for it in of_run), default="") for of_run in steps]
    times = [_times(it.run) for it in runs]
    names = [it.name for it in runs]
    columns = [
        Column("run", output.short_names(names), left=True),
        Column("tags", [str(len(of_run)) for of_run in steps], rank=2),
        Column("points", [str(sum(map(len, of_run))) for of_run in steps], rank=1),
        Column("last step", [*map(str, last)]),
        Column("duration", [output.duration(it[1] - it[0]) if it else "" for it in times], rank=3),
        Column("last point", [output.date(it[1]) if it else "" for it in times], rank=4),
    ]
    output.write_table(columns)
    output.say_prefix(names)


def _times(run: events.Run) -> tuple[float, float] | None:
    times = [it.wall_times for it in _columns(run)]
    if not times:
        return None
    return min(float(it[0]) for it in times), max(float(it[-1]) for it in times)


def _columns(run: events.Run) -> list[events.Scalars | events.Points]:
    scalars = [it for it in run.scalars.values() if len(it.steps)]
    return [*scalars, *(points for _, _, points in _points(run))]


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
    _write_comparison(rows, goals)
    if len(rows) < count:
        output.say(f"the first {len(rows)} of {count} runs; leave out --limit to see all", "dim")


def _row(named: NamedRun, goals: Goals) -> _Row:
    path, hparams = str(named.run.path), hparams_of(named.run)
    summaries = summaries_of(named.run, goals)
    if not summaries:
        return _Row(named.name, path, None, None, hparams, {})
    duration = max(it.last_time for it in summaries) - min(it.first_time for it in summaries)
    step = max(it.last_step for it in summaries)
    return _Row(named.name, path, step, duration, hparams, {it.tag: it for it in summaries})


def _write_comparison(rows: Sequence[_Row], goals: Goals) -> None:
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
    for title, values in zip(output.shortened([*different], 4), different.values(), strict=True):
        columns.append(Column(title, values, rank=2))
    for rank, (tag, title) in enumerate(zip(tags, output.shortened(tags, 4), strict=True), start=2):
        columns += _columns_of(title, [row.scalars.get(tag) for row in rows], goals.of(tag), rank)
    output.write_table(columns)
    if common:
        settings = [f"{output.tag(name)} {value}" for name, value in common.items()]
        output.say(f"in all runs: {', '.join(settings)}", style="dim")
    output.say_prefix(names)


def _hparams(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the hyper-parameters that all runs share, and those that differ."""
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
        cells = [_extreme(it) for it in best]
        styles = ["bold" if it is not None and it.value == record else "" for it in best]
        columns.append(Column(f"{name} {output.arrow(goal)}", cells, rank, styles=styles))
    return columns
