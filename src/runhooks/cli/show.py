"""``runhooks show``: what is in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runhooks import clock, events
from runhooks.cli import formats, output
from runhooks.cli.chart import sparkline
from runhooks.cli.runs import Higher, Json, Lower, NamedRun, RunPath, Tags, hparams_of, read_runs
from runhooks.cli.summary import Extreme, Goals, ScalarSummary, summaries_of
from runhooks.cli.table import Column, say_prefix, short_names, write_table
from runhooks.events.reading.messages import KINDS
from runhooks.stores.path import AnyPath

# More runs than this get one row each.
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
        _write_hparams(hparams)
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
    parts = [formats.count(len(files), "file"), formats.size(sum(map(_size, files)))]
    if times := _times(named.run):
        first, last = times
        parts += [
            f"spans {formats.duration(last - first)}",
            f"last point {output.unbroken(_ago(last))}",
        ]
    name = str(named.run.path) if named.name == "." else named.name
    return f"{formats.printable(name)}: {', '.join(parts)}"


def _size(file: AnyPath) -> int:
    try:
        return file.stat().st_size
    except OSError:  # removed in the meantime
        return 0


def _ago(wall_time: float) -> str:
    age = clock.wall() - wall_time
    return f"{formats.date(wall_time)}" + (f" ({formats.duration(age)} ago)" if age >= 0 else "")


def _others(run: events.Run) -> list[dict[str, Any]]:
    found = []
    for kind, tag, points in _points(run):
        row = {"tag": tag, "kind": kind, "points": len(points)}
        span = {"first_step": int(points.steps.min()), "last_step": int(points.steps.max())}
        found.append({**row, **span})
    return sorted(found, key=lambda row: (row["tag"], row["kind"]))


def _points(run: events.Run) -> list[tuple[str, str, events.Points]]:
    """Return what is no scalar, with its kind and tag: a tag may have several kinds."""
    kinds = [kind for kind in KINDS if kind not in ("scalar", "hparams")]
    found = [(kind, tag, points) for kind in kinds for tag, points in run.points(kind).items()]
    return [it for it in found if len(it[2])]


def _write_scalars(run: events.Run, summaries: Sequence[ScalarSummary]) -> None:
    columns = [
        Column("scalar", formats.shortened([it.tag for it in summaries]), left=True),
        Column("points", [str(it.points) for it in summaries], rank=4),
        Column("steps", [formats.span(it.first_step, it.last_step) for it in summaries], rank=1),
        Column("first", [formats.number(it.first) for it in summaries], rank=3),
        Column("last", [formats.number(it.last) for it in summaries]),
        Column("min", [_extreme(it.min) for it in summaries], rank=5),
        Column("max", [_extreme(it.max) for it in summaries], rank=6),
        Column("best", [_best(it) for it in summaries], rank=2),
        Column(
            "nan/inf",
            [str(it.non_finite or "") for it in summaries],
            styles=["red"] * len(summaries),
        ),
    ]
    curves = [run.scalars[it.tag] for it in summaries]
    write_table(columns, lambda row, width: sparkline(curves[row], width))


def _write_hparams(hparams: Mapping[str, Any]) -> None:
    values = [formats.hparam(value) for value in hparams.values()]
    names = formats.shortened([*hparams])
    write_table([Column("hyper-parameter", names, left=True), Column("value", values, left=True)])


def _extreme(extreme: Extreme | None) -> str:
    return "" if extreme is None else formats.at_step(*extreme)


def _best(summary: ScalarSummary) -> str:
    if summary.best is None or summary.goal is None:
        return ""
    return f"{output.arrow(summary.goal)} {formats.at_step(*summary.best)}"


def _write_others(others: Sequence[dict[str, Any]]) -> None:
    spans = [formats.span(it["first_step"], it["last_step"]) for it in others]
    write_table(
        [
            Column("other", formats.shortened([it["tag"] for it in others]), left=True),
            Column("kind", [it["kind"] for it in others], left=True),
            Column("points", [str(it["points"]) for it in others], rank=1),
            Column("steps", spans, rank=2),
        ]
    )


def _write_overview(runs: Sequence[NamedRun]) -> None:
    counts = [_points_of_tags(it.run) for it in runs]
    tags = [str(len(it)) for it in counts]
    points = [str(sum(it)) for it in counts]
    times = [_times(it.run) for it in runs]
    names = [it.name for it in runs]
    columns = [
        Column("run", short_names(names), left=True),
        Column("tags", tags, rank=2),
        Column("points", points, rank=1),
        Column("last step", [_last_step(it.run) for it in runs]),
        Column("duration", [formats.duration(it[1] - it[0]) if it else "" for it in times], rank=3),
        Column("last point", [formats.date(it[1]) if it else "" for it in times], rank=4),
    ]
    write_table(columns)
    say_prefix(names)


def _points_of_tags(run: events.Run) -> list[int]:
    """Return the number of points of each row that the tables of a single run show."""
    return [len(it.steps) for it in _columns(run)]


def _last_step(run: events.Run) -> str:
    return str(max((int(it.steps.max()) for it in _columns(run)), default=""))


def _times(run: events.Run) -> tuple[float, float] | None:
    times = [it.wall_times for it in _columns(run)]
    if not times:
        return None
    return min(float(it[0]) for it in times), max(float(it[-1]) for it in times)


def _columns(run: events.Run) -> list[events.Scalars | events.Points]:
    scalars = [it for it in run.scalars.values() if len(it.steps)]
    return [*scalars, *(points for _, _, points in _points(run))]
