"""``runhooks plot``: the curves of runs, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runhooks.cli import formats, output
from runhooks.cli.chart import LINES, Line, write_chart
from runhooks.cli.output import CommandError
from runhooks.cli.runs import Higher, Json, Lower, NamedRun, RunPaths, Tags, read_runs
from runhooks.cli.summary import Goals, best_first, summarized


def plot(
    run: RunPaths,
    tag: Tags = None,
    lower: Lower = None,
    higher: Higher = None,
    json: Json = False,
) -> None:
    """Plot scalars: one chart per tag, one line per run.

    --tag may be left out if the runs have only one scalar tag. Values that are not finite are left
    out. A chart has the best 12 runs if there are more.
    """
    runs = read_runs(run, tag, "scalar")
    by_tag = {it: _lines(runs, it) for it in _tags(runs, bool(tag))}
    if json:
        output.write_json([_as_json(it, line) for it, lines in by_tag.items() for line in lines])
        return
    _check_finite(by_tag)
    _write_charts(by_tag, Goals(lower, higher))


def _tags(runs: Sequence[NamedRun], chosen: bool) -> list[str]:
    tags = sorted(
        {tag for it in runs for tag, scalars in it.run.scalars.items() if len(scalars.steps)}
    )
    if len(tags) > 1 and not chosen:
        raise CommandError(f"choose what to plot with --tag: {formats.listed(tags)}")
    return tags


def _lines(runs: Sequence[NamedRun], tag: str) -> list[Line]:
    found = [(it.name, it.run.scalars.get(tag)) for it in runs]
    return [Line(name, it) for name, it in found if it is not None and len(it.steps)]


def _check_finite(by_tag: Mapping[str, Sequence[Line]]) -> None:
    lines = [line for lines in by_tag.values() for line in lines]
    if all(line.non_finite == len(line.scalars.steps) for line in lines):
        raise CommandError(f"there is no finite value of {formats.listed([*by_tag])} to plot")


def _as_json(tag: str, line: Line) -> dict[str, Any]:
    columns = {name: column.tolist() for name, column in line.scalars._asdict().items()}
    return {"tag": tag, "run": line.name, **columns}


def _write_charts(by_tag: Mapping[str, Sequence[Line]], goals: Goals) -> None:
    goals.check(by_tag)
    chosen = {tag: _best(tag, lines, goals) for tag, lines in by_tag.items()}
    for index, (tag, lines) in enumerate(chosen.items()):
        if index:
            output.write()
        write_chart(formats.tag(tag), lines)
        if len(lines) < (count := len(by_tag[tag])):
            which = "lowest" if goals.of(tag) == "min" else "highest"
            output.say(
                f"the {len(lines)} of {count} runs with the {which} {formats.tag(tag)}", "dim"
            )


def _best(tag: str, lines: Sequence[Line], goals: Goals) -> list[Line]:
    """Return as many of the best of ``lines`` as a chart can have, in their order."""
    if len(lines) <= LINES:
        return list(lines)
    goal = goals.decided(tag)
    best = best_first(lines, goal, lambda line: summarized(tag, line.scalars, goal))[:LINES]
    chosen = set(map(id, best))
    return [line for line in lines if id(line) in chosen]
