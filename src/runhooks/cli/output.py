"""Where the command prints: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from runhooks.cli.formats import printable
from runhooks.events.json_number import json_number


def console() -> Console:
    """Where results go."""
    return Console(markup=False, highlight=False, emoji=False)


def width() -> int | None:
    """The columns that results may have: those of the terminal, or what COLUMNS says; else None."""
    said = os.environ.get("COLUMNS", "").isdecimal()
    return console().width if said or sys.stdout.isatty() else None


def has_blocks() -> bool:
    """Whether results may have other characters than those of ASCII."""
    return console().encoding.startswith("utf")


def arrow(goal: Literal["min", "max"]) -> str:
    """What stands before a value that is the best because it is the lowest, or the highest."""
    return {"min": "↓", "max": "↑"}[goal] if has_blocks() else goal


def write(line: Text | str = "", style: str = "") -> None:
    """Print a line of results as it is, longer than the terminal is wide if need be."""
    console().print(Text(line) if isinstance(line, str) else line, style=style, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """Print ``sentence`` among the results; a terminal gets it broken between words."""
    console().print(Text(sentence), style=style, soft_wrap=width() is None)


def write_json(value: Any) -> None:
    """Print ``value`` as JSON, in which NaN and infinities are strings as in Protocol Buffers'."""
    text = json.dumps(_plain(value), indent=2 if sys.stdout.isatty() else None, allow_nan=False)
    sys.stdout.write(f"{text}\n")


def write_json_lines(values: Iterable[Any]) -> None:
    """Print each of ``values`` as one line of JSON, at once."""
    for value in values:
        sys.stdout.write(json.dumps(_plain(value), allow_nan=False) + "\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """Print to stderr what went wrong."""
    errors = Console(stderr=True, markup=False, highlight=False, emoji=False)
    lines = [printable(line) for line in message.splitlines()]
    errors.print(Text("runhooks: " + "\n".join(lines)), soft_wrap=not sys.stderr.isatty())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): _plain(it) for key, it in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(it) for it in value]
    return value
