"""Printing: numbers, times and names as text; results to stdout, everything else to stderr."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from runhooks.events.reading.table import json_value
from runhooks.stores.path import AnyPath

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MANY = 10
_WHOLE = 2**53  # a float below it that is a whole number is exact
_LONG = 100  # the most columns of a tag
_CUT = "..."
_NO_BREAK = "\u2800"  # looks like a space, and is none


class CommandError(Exception):
    """The message says why the command cannot do what it was asked to do."""


@functools.cache
def console() -> Console:
    """Return the console of stdout, made once for a command line."""
    return Console(markup=False, highlight=False, emoji=False)


def width() -> int | None:
    """Return the columns of the terminal, or those that COLUMNS gives; None without either."""
    given = os.environ.get("COLUMNS", "").isdecimal()
    return console().width if given or sys.stdout.isatty() else None


def has_blocks() -> bool:
    """Return whether results may have characters outside ASCII."""
    return console().encoding.startswith("utf")


def arrow(goal: Literal["min", "max"]) -> str:
    """Return the mark of a best value."""
    return {"min": "↓", "max": "↑"}[goal] if has_blocks() else goal


def write(line: Text | str = "", style: str = "") -> None:
    """Print a line of results, which is not wrapped; a ``Text`` must be printable already."""
    text = Text(printable(line)) if isinstance(line, str) else line
    if console().color_system is None:  # then this prints the same, at a hundredth of the cost
        sys.stdout.write(f"{text.plain}\n")
    else:
        console().print(text, style=style, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """Print ``sentence`` among the results; on a terminal it is wrapped between words.

    A long word, such as a path, stays whole, and so does what ``unbroken`` returns.
    """
    room, lines = width(), [printable(sentence)]
    if room is not None:
        indent = " " * (len(sentence) - len(sentence.lstrip(" ")))
        wrapper = textwrap.TextWrapper(
            room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines = wrapper.wrap(lines[0])
    for line in lines:
        write(line.replace(_NO_BREAK, " "), style)


def unbroken(text: str) -> str:
    """Return ``text`` so that ``say`` does not break it at its spaces."""
    return text.replace(" ", _NO_BREAK)


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
    def write(self, text: str) -> None:
        sys.stdout.write("\n".join(map(printable, text.split("\n"))))


def stdout_of_data() -> Any:
    """Return the file that takes data as they are; a terminal gets them made ``printable``."""
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


def number(value: float) -> str:
    """Return five significant digits of ``value``; all of a whole number below a million."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"


def at_step(value: float, step: int) -> str:
    """Return ``0.25 @100``."""
    return f"{number(value)} @{step}"


def hparam(value: object) -> str:
    """Return the value of a hyper-parameter; "" for None. Whole numbers keep all digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else number(value)
    return "" if value is None else tag(str(value))


def hparams(values: Sequence[object]) -> list[str]:
    """Return the values of one hyper-parameter, so that those that differ look different."""
    cells = list(map(hparam, values))
    if len(set(cells)) < len(set(map(repr, values))):
        cells = shortened([repr(it) if isinstance(it, float) else str(it) for it in values])
    return ["" if it is None else cell for it, cell in zip(values, cells, strict=True)]


def span(first: int, last: int) -> str:
    """Return ``1..100``."""
    return str(first) if first == last else f"{first}..{last}"


def size(in_bytes: int) -> str:
    """Return ``1.5 MB``."""
    if in_bytes < 1000:
        return f"{in_bytes} B"
    scaled = float(min(in_bytes, 10**300))  # of a damaged checkpoint it may be anything
    for unit in ("kB", "MB", "GB"):
        scaled /= 1000
        if scaled < 999.5:
            return f"{scaled:.3g} {unit}"
    return f"{scaled / 1000:.3g} TB"


def duration(secs: float) -> str:
    """Return ``2h05m``: the two largest units."""
    if not 0 <= secs < 1e11:
        return "?"
    whole = int(secs)
    for large, small, signs in ((_DAY, _HOUR, "dh"), (_HOUR, _MINUTE, "hm"), (_MINUTE, 1, "ms")):
        if whole >= large:
            return f"{whole // large}{signs[0]}{whole % large // small:02d}{signs[1]}"
    return f"{whole}s"


def date(wall_time: float) -> str:
    """Return seconds since the epoch as local date and time; as a number if they are none."""
    try:
        return f"{datetime.fromtimestamp(wall_time):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return number(wall_time)


def time_of_day(wall_time: float) -> str:
    """As ``date``, without the date."""
    return date(wall_time).rpartition(" ")[2]


def printable(name: str | AnyPath) -> str:
    """Return ``name`` with what cannot be printed escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def tag(name: str) -> str:
    """Return ``name`` printable, without its middle if it is very long; ``''`` if it is empty."""
    return _cut(printable(name), _LONG) or "''"


def shortened(names: Sequence[str], width: int | None = None) -> list[str]:
    """Return ``names`` printable, each without its middle if it is wider than ``width``.

    Those that differ stay different, in more columns if need be.
    """
    whole, width = [printable(name) for name in names], width or _LONG
    while len(set(short := [_cut(name, width) for name in whole])) < len(set(whole)):
        width *= 2
    return short


def _cut(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    end = (width - len(_CUT)) // 2
    begin = width - len(_CUT) - end
    return chop_cells(name, begin)[0] + _CUT + chop_cells(name[::-1], end)[0][::-1]


def count(quantity: int, noun: str) -> str:
    """Return ``1 file`` or ``2 files``."""
    return f"{quantity} {noun}" if quantity == 1 else f"{quantity} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return ``names`` separated by commas: the first ten, and the number of the rest."""
    if not names:
        return "none"
    rest = len(names) - _MANY
    return ", ".join(map(tag, names[:_MANY])) + (f" and {rest} more" if rest > 0 else "")
