"""Printing: results to stdout, all else to stderr."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from runhooks.events.reading.table import json_value
from runhooks.stores.path import AnyPath

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MANY = 10
_WHOLE = 2**53  # whole floats below it are exact
_LONG = 100
_DOTS = "..."
_GAP = 2
_NARROWEST_NAME = 8
_NARROWEST_SHARE = 16
_CURVE = range(8, 33)
_RANK_OF_CURVE = 3
_NO_BREAK = "\u2800"  # looks like a space, and is none


class CommandError(Exception):
    """The command cannot do what it was asked to do."""


@functools.cache
def console() -> Console:
    return Console(markup=False, highlight=False, emoji=False)


def width() -> int | None:
    """Return the columns of the terminal, or those that COLUMNS gives; None without either."""
    given = os.environ.get("COLUMNS", "").isdecimal()
    return console().width if given or sys.stdout.isatty() else None


def has_blocks() -> bool:
    """Return whether results may be more than ASCII."""
    return console().encoding.startswith("utf")


def arrow(goal: Literal["min", "max"]) -> str:
    return {"min": "↓", "max": "↑"}[goal] if has_blocks() else goal


def write(line: Text | str = "", style: str = "") -> None:
    """Print a line, which is not wrapped; a ``Text`` must be printable already."""
    text = Text(printable(line)) if isinstance(line, str) else line
    if console().color_system is None:  # the same, at a hundredth of the cost
        sys.stdout.write(f"{text.plain}\n")
    else:
        console().print(text, style=style, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """Print ``sentence``, which a terminal wraps between words."""
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
    """Return what ``say`` does not wrap."""
    return text.replace(" ", _NO_BREAK)


def write_json(value: Any, *, in_one_line: bool = False) -> None:
    """Print ``value`` as JSON; NaN and infinities become strings, as in Protocol Buffers."""
    indent = 2 if sys.stdout.isatty() and not in_one_line else None
    sys.stdout.write(json.dumps(json_value(value), indent=indent, allow_nan=False) + "\n")


class _PrintableStdout:
    def write(self, text: str) -> None:
        sys.stdout.write("\n".join(map(printable, text.split("\n"))))


def stdout_of_data() -> Any:
    """Return stdout for data, which on a terminal become ``printable``."""
    return _PrintableStdout() if sys.stdout.isatty() else sys.stdout


def complain(message: str) -> None:
    text = f"runhooks: {printable(message)}"
    _errors().print(Text(text), soft_wrap=not sys.stderr.isatty())


@contextmanager
def progress(path: AnyPath) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    with _errors().status(Text(f"reading {printable(path)}")):
        yield


def _errors() -> Console:
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def number(value: float) -> str:
    """Return five significant digits; all of a whole number below a million."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"


def hparam(value: object) -> str:
    """Return a hyper-parameter as text; whole numbers keep all digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else number(value)
    return "" if value is None else tag(str(value))


def hparams(values: Sequence[object]) -> list[str]:
    """Return texts that differ where ``values`` do."""
    cells = list(map(hparam, values))
    if len(set(cells)) < len(set(map(repr, values))):
        cells = shortened([repr(it) if isinstance(it, float) else str(it) for it in values])
    return ["" if it is None else cell for it, cell in zip(values, cells, strict=True)]


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def size(in_bytes: int) -> str:
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
    """Return seconds since the epoch as local time."""
    try:
        return f"{datetime.fromtimestamp(wall_time):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return number(wall_time)


def printable(name: str | AnyPath) -> str:
    text = str(name)
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def tag(name: str) -> str:
    """Return ``name`` printable, cut if very long; ``''`` if empty."""
    return _cut(printable(name), _LONG) or "''"


def shortened(names: Sequence[str], part: int | None = None) -> list[str]:
    """Return ``names`` printable, without the middle of very long ones.

    With ``part``, such as 4 for a quarter, each has that part of the terminal. Those that differ
    stay different.
    """
    whole, room = [printable(name) for name in names], _share(part) or _LONG
    while len(set(short := [_cut(name, room) for name in whole])) < len(set(whole)):
        room *= 2
    return short


def _cut(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    end = (width - len(_DOTS)) // 2
    begin = width - len(_DOTS) - end
    return chop_cells(name, begin)[0] + _DOTS + chop_cells(name[::-1], end)[0][::-1]


def count(quantity: int, noun: str) -> str:
    return f"{quantity} {noun}" if quantity == 1 else f"{quantity} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return the first ten ``names``, and the number of the rest."""
    if not names:
        return "none"
    rest = len(names) - _MANY
    return ", ".join(map(tag, names[:_MANY])) + (f" and {rest} more" if rest > 0 else "")


class Column(NamedTuple):
    """One column of a table; where room is lacking, high ranks are left out, but never 0."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.title, *self.cells))


def write_table(columns: Sequence[Column], curve: Callable[[int, int], str] | None = None) -> None:
    """Print ``columns``, and what ``curve(row, width)`` draws; ranks from 3 on make room for it.

    The first column holds names, which get lines of their own if nothing else helps.
    """
    columns = [
        it._replace(title=printable(it.title), cells=[*map(printable, it.cells)]) for it in columns
    ]
    room = width()
    wanted = _GAP + _CURVE[0] if curve is not None and has_blocks() else 0
    shown, hidden = _fitting(columns, room, wanted)
    widths, rows = [column.width for column in shown], range(len(shown[0].cells))
    if room is not None and _total(shown) > room:
        widths[0] = max(_NARROWEST_NAME, widths[0] - _total(shown) + room)
    left = _CURVE[-1] if room is None else min(_CURVE[-1], room - _total(shown) - _GAP)
    if curve is not None and wanted and left in _CURVE:
        cells = [curve(row, left) for row in rows]
        shown.append(Column("curve", cells, left=True, styles=["cyan"] * len(rows)))
        widths.append(left)
    write(_line([(column.title, "bold") for column in shown], shown, widths))
    for row in rows:
        _write_row(row, shown, widths)
    if hidden:
        names = listed([column.title for column in hidden])
        say(f"{names}: in a wider terminal, or with --json", style="dim")


def short_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` without a common prefix, if they are longer than a third of the width."""
    prefix = _prefix(names)
    shown = [_DOTS + name[len(prefix) :] for name in names] if prefix else names
    return shortened(shown, 3)


def say_prefix(names: Sequence[str]) -> None:
    """Print what ``short_names`` left out."""
    if prefix := _prefix(names):
        say(f"{_DOTS} stands for {tag(prefix)}", style="dim")


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _fitting(
    columns: Sequence[Column], room: int | None, for_curve: int
) -> tuple[list[Column], list[Column]]:
    filled = [column for column in columns if any(column.cells)]
    if room is None:
        return filled, []
    widths = [column.width + _GAP for column in filled]
    total = sum(widths) - _GAP
    hidden: dict[int, Column] = {}
    for at in sorted(range(len(filled)), key=lambda at: (-filled[at].rank, -at)):
        wanted = for_curve if filled[at].rank >= _RANK_OF_CURVE else 0
        if filled[at].rank == 0 or total + wanted <= room:
            break
        total -= widths[at]
        hidden[at] = filled[at]
    shown = [column for at, column in enumerate(filled) if at not in hidden]
    return shown, [*reversed(hidden.values())]


def _write_row(row: int, columns: Sequence[Column], widths: Sequence[int]) -> None:
    cells = [(column.cells[row], column.styles[row] if column.styles else "") for column in columns]
    if cell_len(cells[0][0]) > widths[0]:  # whole, so that it can be copied
        write(cells[0][0], style=cells[0][1])
        cells[0] = ("", "")
    write(_line(cells, columns, widths))


def _line(
    cells: Sequence[tuple[str, str]], columns: Sequence[Column], widths: Sequence[int]
) -> Text:
    line = Text()
    for (text, style), column, room in zip(cells, columns, widths, strict=True):
        padding = " " * (room - cell_len(text))
        gap = " " * _GAP if line else ""
        before, after = (gap, padding) if column.left else (gap + padding, "")
        line.append(before).append(text, style).append(after)
    line.rstrip()
    return line


def _share(part: int | None) -> int | None:
    room = width()
    return None if room is None or part is None else max(_NARROWEST_SHARE, room // part)


def _prefix(names: Sequence[str]) -> str:
    room = _share(3)
    if room is None or len(names) < 2 or all(cell_len(name) <= room for name in names):
        return ""
    columns = zip(*names, strict=False)
    common = itertools.takewhile(lambda letters: len(set(letters)) == 1, columns)
    words = re.match(r".*[\W_]", "".join(letter for letter, *_ in common), re.DOTALL)
    return words[0] if words else ""
