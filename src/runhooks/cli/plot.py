"""``runhooks plot``: the curves of runs, in the terminal or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from runhooks.cli import formats, output
from runhooks.cli.chart import LINES, Line, write_chart
from runhooks.cli.command_error import CommandError
from runhooks.cli.parameters import Json, RunPaths, Tags
from runhooks.cli.picture import draw
from runhooks.cli.runs import NamedRun, read_runs


def plot(
    run: RunPaths,
    tag: Tags = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw into FILE instead.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Plot scalars: a chart a tag, in it a line a run.

    Without --tag, runs that have one scalar tag between them are plotted. Values that are not
    finite are left out.
    """
    if png is not None and png.suffix.lower() != ".png":
        raise CommandError(f"--png takes a FILE that ends with .png, not {png}")
    runs = read_runs(run, tag, "scalar")
    by_tag = {it: _lines(runs, it) for it in _tags(runs, bool(tag))}
    if json:
        output.write_json([_as_json(it, line) for it, lines in by_tag.items() for line in lines])
        return
    _check_finite(by_tag)
    if png is not None:
        draw(by_tag, png)
    else:
        _write_charts(by_tag)


def _tags(runs: Sequence[NamedRun], chosen: bool) -> list[str]:
    tags = sorted(
        {tag for it in runs for tag, scalars in it.run.scalars.items() if len(scalars.steps)}
    )
    if len(tags) > 1 and not chosen:
        raise CommandError(f"name what to plot with --tag: {formats.listed(tags)}")
    return tags


def _lines(runs: Sequence[NamedRun], tag: str) -> list[Line]:
    found = [(it.name, it.run.scalars.get(tag)) for it in runs]
    return [Line(name, it) for name, it in found if it is not None and len(it.steps)]


def _check_finite(by_tag: dict[str, list[Line]]) -> None:
    lines = [line for lines in by_tag.values() for line in lines]
    if all(line.non_finite == len(line.scalars.steps) for line in lines):
        raise CommandError(f"there is no finite value of {formats.listed([*by_tag])} to plot")


def _as_json(tag: str, line: Line) -> dict[str, Any]:
    columns = {name: column.tolist() for name, column in line.scalars._asdict().items()}
    return {"tag": tag, "run": line.name, **columns}


def _write_charts(by_tag: dict[str, list[Line]]) -> None:
    most = max(map(len, by_tag.values()))
    if most > LINES:
        raise CommandError(
            f"a terminal can show {LINES} lines apart, not {most}: name fewer runs, or draw them "
            "into a file with --png"
        )
    for index, (tag, lines) in enumerate(by_tag.items()):
        if index:
            output.write()
        write_chart(formats.tag(tag), lines)
