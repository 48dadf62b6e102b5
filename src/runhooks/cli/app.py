"""The command, its sub-commands, and the exit status of their errors."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from runhooks.cli.check import check, checkpoints
from runhooks.cli.doctor import doctor
from runhooks.cli.export import export
from runhooks.cli.output import CommandError, complain, console
from runhooks.cli.plot import plot
from runhooks.cli.tables import compare, show
from runhooks.cli.tail import tail
from runhooks.errors import OpError, described
from runhooks.version import __version__

# Of the click inside typer, or of the package click.
_UsageError: Any = typer.BadParameter.__base__
_TRACEBACK = "RUNHOOKS_TRACEBACK"


class _Complaints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (CommandError, OpError) as error:
            complain(str(error))
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except _UsageError as error:
            path = (error.ctx or ctx).command_path
            complain(f"{error.format_message().rstrip('.')}; see {path} --help")
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if _TRACEBACK in os.environ:
                raise
            complain(f"unexpected error: {described(error)}; {_TRACEBACK}=1 shows where it arose")
        raise typer.Exit(2)


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


@app.command("doctor", help=doctor.__doc__)
def _doctor(
    framework: Annotated[
        list[str] | None, typer.Argument(metavar="[FRAMEWORK...]", show_default=False)
    ] = None,
) -> None:
    doctor(framework)


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

    RUN is an event file, the directory of a run, or a directory above runs. The status is 2 if
    something is wrong with the command line or with a path in it.
    """


def run() -> None:
    console.cache_clear()
    logger, complaints = logging.getLogger("runhooks"), _Complaints(logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    logger.addHandler(complaints)
    try:
        app(prog_name="runhooks")
    finally:
        logger.removeHandler(complaints)
