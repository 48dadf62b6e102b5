"""``runhooks export``: scalars as a table."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from runhooks import events
from runhooks.cli import output
from runhooks.cli.runs import RunPath, Tags, anywhere, read_one
from runhooks.stores.path import AnyPath, StorePath

_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


def export(
    run: RunPath,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="A JSON object per line.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="A Parquet file.")] = False,
    out: Annotated[
        Any,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=anywhere,
            help="Write to FILE, a path or a URL, instead of stdout; - is stdout.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="A column per tag and a row per step, not a row per point."),
    ] = False,
    hparams: Annotated[
        bool, typer.Option("--hparams", help="Add a column per hyper-parameter.")
    ] = False,
    tag: Tags = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print what was written to FILE as JSON.")
    ] = False,
) -> None:
    """Export scalars as a table for other programs.

    The columns are run, tag, step, wall_time (seconds since the epoch) and value; with --hparams
    also hparams/NAME for each hyper-parameter. The format is given by an option, else by the ending
    of FILE, else it is CSV.
    """
    if str(out) == "-":
        out = None
    wanted = {"csv": csv, "jsonl": jsonl, "parquet": parquet}
    chosen = _chosen([name for name, flag in wanted.items() if flag], out)
    if out is None and json:
        raise output.CommandError("--json needs -o FILE as well")
    is_binary = chosen == "parquet"
    if out is None and is_binary and sys.stdout.isatty():
        raise output.CommandError("--parquet needs -o FILE, or a pipe, as well")
    runs = read_one(run, tag, "scalar")
    if out is None:
        stdout = sys.stdout.buffer if is_binary else output.stdout_of_data()
        _write(runs, chosen, stdout, wide, hparams)
        return
    with output.progress(run):
        _write(runs, chosen, out, wide, hparams)
    if isinstance(out, StorePath) or out.is_file():  # not a pipe
        _report(runs, out, json)


def _chosen(options: list[str], out: AnyPath | None) -> str:
    if not options and out is not None and out.suffix.lower() in _ENDINGS:
        return _ENDINGS[out.suffix.lower()]
    if len(options) > 1 or (not options and out is not None):
        raise output.CommandError(
            "export needs one of --csv, --jsonl and --parquet, or -o FILE with such an ending"
        )
    return options[0] if options else "csv"


def _write(runs: events.Runs, chosen: str, to: Any, wide: bool, hparams: bool) -> None:
    write = {"csv": runs.to_csv, "jsonl": runs.to_json_lines, "parquet": runs.to_parquet}[chosen]
    try:
        write(to, wide, hparams)
    except (ImportError, ValueError) as error:
        raise output.CommandError(str(error)) from error


def _report(runs: events.Runs, out: AnyPath, json: bool) -> None:
    points = sum(len(it.steps) for run in runs.values() for it in run.scalars.values())
    size = out.stat().st_size
    if json:
        output.write_json({"path": out, "runs": len(runs), "points": points, "size": size})
    else:
        amount = f"{output.count(points, 'point')} of {output.count(len(runs), 'run')}"
        output.write(f"{output.printable(out)}: {amount}, {output.size(size)}")
