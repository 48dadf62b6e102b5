"""``runhooks export``: the scalars of runs as a table for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from runhooks import events
from runhooks.cli import formats, output
from runhooks.cli.command_error import CommandError
from runhooks.cli.parameters import RunPath, Tags
from runhooks.cli.progress import progress
from runhooks.cli.runs import read_one

_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


def export(
    run: RunPath,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="A JSON object a line.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="A Parquet file.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to, in place of stdout."),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="A column a tag and a row a step, not a row a point.")
    ] = False,
    tag: Tags = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print what was written to FILE as JSON.")
    ] = False,
) -> None:
    """Export scalars as a table for other programs.

    Columns are run, tag, step, wall_time (seconds since the epoch) and value. The ending of FILE
    tells the format, unless --csv, --jsonl or --parquet does.
    """
    wanted = {"csv": csv, "jsonl": jsonl, "parquet": parquet}
    chosen = _chosen([name for name, flag in wanted.items() if flag], out)
    if out is None and (chosen == "parquet" or json):
        option = "--json" if json else "--parquet"
        raise CommandError(f"{option} takes -o FILE as well")
    runs = read_one(run, tag, "scalar")
    if out is None:
        _write(runs, chosen, sys.stdout, wide)
        return
    with progress(run):
        _write(runs, chosen, out, wide)
    _report(runs, out, json)


def _chosen(options: list[str], out: Path | None) -> str:
    """Return the format that was named, or that the name of the file tells."""
    if not options and out is not None and out.suffix.lower() in _ENDINGS:
        return _ENDINGS[out.suffix.lower()]
    if len(options) != 1:
        raise CommandError(
            "export takes one of --csv, --jsonl and --parquet, or -o FILE with such an ending"
        )
    return options[0]


def _write(runs: events.Runs, chosen: str, to: Any, wide: bool) -> None:
    write = {"csv": runs.to_csv, "jsonl": runs.to_json_lines, "parquet": runs.to_parquet}[chosen]
    try:
        write(to, wide)
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error


def _report(runs: events.Runs, out: Path, json: bool) -> None:
    points = sum(len(it.steps) for run in runs.values() for it in run.scalars.values())
    size = out.stat().st_size
    if json:
        output.write_json({"path": out, "runs": len(runs), "points": points, "size": size})
    else:
        amount = f"{formats.count(points, 'point')} of {formats.count(len(runs), 'run')}"
        output.write(f"{formats.printable(out)}: {amount}, {formats.size(size)}")
