"""The parameters that several sub-commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="An event file, the directory of a run, or one above runs.",
        show_default=False,
    ),
]
RunPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Event files, directories of runs, or directories above runs.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="GLOB",
        help="Only these tags, such as 'loss*'. May be given several times.",
        show_default=False,
    ),
]
Lower = Annotated[
    list[str] | None,
    typer.Option(
        "--min",
        metavar="GLOB",
        help="Tags of which the lowest value is the best, where the name does not tell.",
        show_default=False,
    ),
]
Higher = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="GLOB",
        help="Tags of which the highest value is the best.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
