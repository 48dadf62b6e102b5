"""The parameters that several sub-commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from runhooks.cli.output import CommandError
from runhooks.events.place import place
from runhooks.stores.path import AnyPath, path_of


def anywhere(text: str) -> AnyPath:
    """Return the path or URL ``text``. Raises CommandError if nobody knows its scheme."""
    try:
        return path_of(place(path=text))
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error


RunPath = Annotated[
    Any,
    typer.Argument(
        metavar="RUN",
        parser=anywhere,
        help="An event file, the directory of a run, or a directory above runs; a path or a URL.",
        show_default=False,
    ),
]
RunPaths = Annotated[
    list[Any],
    typer.Argument(
        metavar="RUN...",
        parser=anywhere,
        help="Event files, directories of runs, or directories above runs; paths or URLs.",
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
        help="Tags whose lowest value is the best, where the name does not tell.",
        show_default=False,
    ),
]
Higher = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="GLOB",
        help="Tags whose highest value is the best.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
