"""Printing: results go to stdout, everything else to stderr.

What is printed may come from files of others, so every line printed here is made ``printable``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from runhooks.cli.formats import printable
from runhooks.events.reading.table import json_value
from runhooks.stores.path import AnyPath

_NO_BREAK = "\u2800"  # looks like a space, and is none


class CommandError(Exception):
    """The command cannot do what it was asked to do; the message says why."""


@functools.cache
def console() -> Console:
    """Return the console of stdout, made once for a command line."""
    return Console(markup=False, highlight=False, emoji=False)


def width() -> int | None:
    """Return the columns that results may take: the terminal's, or those that COLUMNS gives.

    None if neither is there.
    """
    given = os.environ.get("COLUMNS", "").isdecimal()
    return console().width if given or sys.stdout.isatty() else None


def has_blocks() -> bool:
    """Return whether results may have characters outside ASCII."""
    return console().encoding.startswith("utf")


def arrow(goal: Literal["min", "max"]) -> str:
    """Return the mark of a best value: whether the lowest or the highest is the best."""
    return {"min": "↓", "max": "↑"}[goal] if has_blocks() else goal


def write(line: Text | str = "", style: str = "") -> None:
    """Print a line of results as it is, even if it is wider than the terminal.

    A ``Text`` must be printable already.
    """
    text = Text(printable(line)) if isinstance(line, str) else line
    if console().color_system is None:  # then this prints the same, at a hundredth of the cost
        sys.stdout.write(f"{text.plain}\n")
    else:
        console().print(text, style=style, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """Print ``sentence`` among the results; on a terminal it is wrapped between words.

    A word that is longer than a line, such as a path, stays whole, and so does what ``unbroken``
    returns.
    """
    room = width()
    text = printable(sentence)
    for line in [text] if room is None else _wrapped(text, room):
        write(line.replace(_NO_BREAK, " "), style)


def unbroken(text: str) -> str:
    """Return ``text`` for a sentence in which ``say`` does not break it at its spaces."""
    return text.replace(" ", _NO_BREAK)


def _wrapped(text: str, room: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip(" "))]
    return textwrap.wrap(
        text,
        room,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def write_json(value: Any) -> None:
    """Print ``value`` as JSON; NaN and infinities become strings, as in Protocol Buffers."""
    text = json.dumps(json_value(value), indent=2 if sys.stdout.isatty() else None, allow_nan=False)
    sys.stdout.write(f"{text}\n")


def write_json_lines(values: Iterable[Any]) -> None:
    """Print each of ``values`` as one line of JSON, without delay."""
    for value in values:
        sys.stdout.write(json.dumps(json_value(value), allow_nan=False) + "\n")
    sys.stdout.flush()


class _PrintableStdout:
    """Standard output with all but the line ends made ``printable``."""

    def write(self, text: str) -> None:
        sys.stdout.write("\n".join(map(printable, text.split("\n"))))


def stdout_of_data() -> Any:
    """Return the file that takes data as it is; a terminal gets it made ``printable``."""
    return _PrintableStdout() if sys.stdout.isatty() else sys.stdout


def complain(message: str) -> None:
    """Print an error or a warning to stderr."""
    text = f"runhooks: {printable(message)}"
    _errors().print(Text(text), soft_wrap=not sys.stderr.isatty())


@contextmanager
def progress(path: AnyPath) -> Iterator[None]:
    """On a terminal, say on stderr that ``path`` is being read."""
    if not sys.stderr.isatty():
        yield
        return
    with _errors().status(Text(f"reading {printable(path)}")):
        yield


def _errors() -> Console:
    return Console(stderr=True, markup=False, highlight=False, emoji=False)
