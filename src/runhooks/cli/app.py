"""The command and its sub-commands, and what their failures look like."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from runhooks.cli.check import check
from runhooks.cli.checkpoints import checkpoints
from runhooks.cli.command_error import CommandError
from runhooks.cli.compare import compare
from runhooks.cli.export import export
from runhooks.cli.output import complain
from runhooks.cli.plot import plot
from runhooks.cli.show import show
from runhooks.cli.tail import tail
from runhooks.errors import OpError
from runhooks.version import __version__

_REFUSED = 2


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (CommandError, OpError) as error:
            complain(str(error))
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(_REFUSED)


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.args:
            raise CommandError(
                f"{ctx.info_name} takes one path, got {1 + len(ctx.args)}: give one of them, or "
                "the directory above them"
            )
        return rest


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (show, plot, compare, tail, export, check, checkpoints):
    app.command(cls=_Command, context_settings={"allow_extra_args": True})(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"runhooks {__version__}\n")
        raise typer.Exit


@app.callback()
def _describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Look at what runs have written: event files and checkpoints.

    RUN is an event file, the directory of a run, or a directory above runs. What is wrong with a
    command line, or with a path in it, ends with status 2.
    """


def run() -> None:
    """Run the command line of the process."""
    # Whoever reads may stop reading, as head does: then this ends, in silence, as other tools do.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="runhooks")
