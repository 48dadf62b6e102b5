"""``runhooks plot``: the curves of runs, in the terminal or as a picture."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from runhooks.cli import formats, output
from runhooks.cli.chart import LINES, Line, thinned, write_chart
from runhooks.cli.output import CommandError
from runhooks.cli.runs import Higher, Json, Lower, NamedRun, RunPaths, Tags, anywhere, read_runs
from runhooks.cli.summary import Goals, best_first, summarized
from runhooks.stores.path import AnyPath, replacing

_WIDTH, _HEIGHT = 8.0, 4.5  # of a chart in a picture, in inches
_DOTS_PER_INCH = 150  # fewer where the picture would be too high
_HIGHEST = 2000  # dots
_MOST_ROWS = 6
_WIDEST = 60_000  # dots; matplotlib draws no more than 2**16
_MOST_NAMES = 20


def plot(
    run: RunPaths,
    tag: Tags = None,
    lower: Lower = None,
    higher: Higher = None,
    png: Annotated[
        Any,
        typer.Option(
            "--png",
            metavar="FILE",
            parser=anywhere,
            help="Draw into FILE instead, a path or a URL.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Plot scalars: one chart per tag, one line per run.

    --tag may be left out if the runs have only one scalar tag. Values that are not finite are left
    out. A chart in a terminal has the best 12 runs if there are more.
    """
    if png is not None and png.suffix.lower() != ".png":
        raise CommandError(f"--png takes a FILE that ends with .png, not {png}")
    if png is not None and json:
        raise CommandError("--json prints the points instead of drawing them: leave out --png")
    runs = read_runs(run, tag, "scalar")
    by_tag = {it: _lines(runs, it) for it in _tags(runs, bool(tag))}
    if json:
        output.write_json([_as_json(it, line) for it, lines in by_tag.items() for line in lines])
        return
    _check_finite(by_tag)
    if png is not None:
        _draw(by_tag, png)
        charts = formats.count(len(by_tag), "chart")
        output.write(f"{png}: {charts}, {formats.size(png.stat().st_size)}")
    else:
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
                f"the {len(lines)} of {count} runs with the {which} {formats.tag(tag)}; "
                "--png draws all",
                "dim",
            )


def _best(tag: str, lines: Sequence[Line], goals: Goals) -> list[Line]:
    """Return as many of the best of ``lines`` as a chart can have, in their order."""
    if len(lines) <= LINES:
        return list(lines)
    goal = goals.decided(tag)
    best = best_first(lines, goal, lambda line: summarized(tag, line.scalars, goal))[:LINES]
    chosen = set(map(id, best))
    return [line for line in lines if id(line) in chosen]


def _draw(by_tag: Mapping[str, Sequence[Line]], path: AnyPath) -> None:
    from matplotlib.figure import Figure  # takes a second

    count = len(by_tag)
    columns = 1 if count <= 2 else max(math.ceil(math.sqrt(count)), math.ceil(count / _MOST_ROWS))
    rows = math.ceil(count / columns)
    dots_per_inch = min(_DOTS_PER_INCH, _HIGHEST / (rows * _HEIGHT))
    if columns * _WIDTH * dots_per_inch > _WIDEST:
        raise CommandError(f"{count} tags are too many for a picture: choose some with --tag")
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
    for place, (tag, lines) in enumerate(by_tag.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for line in lines:
            axes.plot(*thinned(line.scalars, int(_WIDTH * dots_per_inch)), linewidth=1)
        axes.set_title(formats.tag(tag), parse_math=False)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if len(lines) <= _MOST_NAMES:
            legend = axes.legend(axes.lines, ["" for _ in lines])
            for text, line in zip(legend.get_texts(), lines, strict=True):
                # Not a label of the line: one that begins with _ would be left out.
                text.set_text(formats.tag(line.name))
                text.set_parse_math(False)
    with replacing(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that the font lacks
        figure.savefig(file, format="png", dpi=dots_per_inch)
