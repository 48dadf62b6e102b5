"""``runhooks export``: the scalars of runs as a table for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runhooks import events
from runhooks.cli import formats, output
from runhooks.cli.command_error import CommandError
from runhooks.cli.parameters import RunPath, Tags
from runhooks.cli.progress import progress
from runhooks.cli.runs import read_one


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

    Columns are run, tag, step, wall_time (seconds since the epoch) and value.
    """
    if csv + jsonl + parquet != 1:
        raise CommandError("export takes one of --csv, --jsonl and --parquet")
    if out is None and (parquet or json):
        raise CommandError(f"{'--parquet' if parquet else '--json'} takes -o FILE as well")
    runs = read_one(run, tag, "scalar")
    write = runs.to_csv if csv else runs.to_json_lines
    if out is None:
        write(sys.stdout, wide)
        return
    with progress(run):
        if parquet:
            _write_parquet(runs, out, wide)
        else:
            write(out, wide)
    _report(runs, out, json)


def _write_parquet(runs: events.Runs, out: Path, wide: bool) -> None:
    try:
        runs.to_parquet(out, wide)
    except ImportError as error:
        raise CommandError(str(error)) from error


def _report(runs: events.Runs, out: Path, json: bool) -> None:
    points = sum(len(it.steps) for run in runs.values() for it in run.scalars.values())
    size = out.stat().st_size
    if json:
        output.write_json({"path": out, "runs": len(runs), "points": points, "size": size})
    else:
        amount = f"{formats.count(points, 'point')} of {formats.count(len(runs), 'run')}"
        output.write(f"{formats.printable(out)}: {amount}, {formats.size(size)}")
