"""``write_table``: as many columns as the terminal has room for, under short names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from runhooks.cli import output

_GAP = 2
_NARROWEST_NAME = 8
_NARROWEST_SHARE = 16
_CURVE = range(8, 33)
_RANK_OF_CURVE = 3
_FOR_PREFIX = "..."


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        title: The text above it.
        cells: One text per row.
        rank: Where room is lacking, those with the highest ranks are left out; those of 0 stay.
        left: Whether the cells are aligned to the left.
        styles: The style of each cell, as rich names it.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.title, *self.cells))


def write_table(columns: Sequence[Column], curve: Callable[[int, int], str] | None = None) -> None:
    """Print ``columns``, and what ``curve(row, width)`` draws, for which those of rank 3 make room.

    The first holds names, which get lines of their own if nothing else helps.
    """
    columns = [_printable(column) for column in columns]
    room = output.width()
    wanted = _GAP + _CURVE[0] if curve is not None and output.has_blocks() else 0
    shown, hidden = _fitting(columns, room, wanted)
    widths, rows = [column.width for column in shown], range(len(shown[0].cells))
    if room is not None and _total(shown) > room:
        widths[0] = max(_NARROWEST_NAME, widths[0] - _total(shown) + room)
    left = _CURVE[-1] if room is None else min(_CURVE[-1], room - _total(shown) - _GAP)
    if curve is not None and wanted and left in _CURVE:
        cells = [curve(row, left) for row in rows]
        shown.append(Column("curve", cells, left=True, styles=["cyan"] * len(rows)))
        widths.append(left)
    output.write(_line([(column.title, "bold") for column in shown], shown, widths))
    for row in rows:
        _write_row(row, shown, widths)
    if hidden:
        names = output.listed([column.title for column in hidden])
        output.say(f"{names}: in a wider terminal, or with --json", style="dim")


def short_titles(tags: Sequence[str]) -> list[str]:
    """Return ``tags`` in a quarter of the width each, if they stay distinct."""
    return output.shortened(tags, _share(4))


def short_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` in a third of the width each, if they stay distinct.

    If they are longer, they lose their common prefix.
    """
    prefix = _prefix(names)
    shown = [_FOR_PREFIX + name[len(prefix) :] for name in names] if prefix else names
    return output.shortened(shown, _share(3))


def say_prefix(names: Sequence[str]) -> None:
    """Print the common prefix that ``short_names`` left out, if it did."""
    if prefix := _prefix(names):
        output.say(f"{_FOR_PREFIX} stands for {output.tag(prefix)}", style="dim")


def _printable(column: Column) -> Column:
    cells = [output.printable(cell) for cell in column.cells]
    return column._replace(title=output.printable(column.title), cells=cells)


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
    hidden: list[int] = []
    for at in sorted(range(len(filled)), key=lambda at: (-filled[at].rank, -at)):
        wanted = for_curve if filled[at].rank >= _RANK_OF_CURVE else 0
        if filled[at].rank == 0 or total + wanted <= room:
            break
        total -= widths[at]
        hidden.append(at)
    left_out = set(hidden)
    shown = [column for at, column in enumerate(filled) if at not in left_out]
    return shown, [filled[at] for at in reversed(hidden)]


def _write_row(row: int, columns: Sequence[Column], widths: Sequence[int]) -> None:
    cells = [(column.cells[row], column.styles[row] if column.styles else "") for column in columns]
    if cell_len(cells[0][0]) > widths[0]:  # whole, so that it can be copied
        output.write(cells[0][0], style=cells[0][1])
        cells[0] = ("", "")
    output.write(_line(cells, columns, widths))


def _line(
    cells: Sequence[tuple[str, str]], columns: Sequence[Column], widths: Sequence[int]
) -> Text:
    line = Text()
    for (text, style), column, width in zip(cells, columns, widths, strict=True):
        padding = " " * (width - cell_len(text))
        gap = " " * _GAP if line else ""
        before, after = (gap, padding) if column.left else (gap + padding, "")
        line.append(before).append(text, style).append(after)
    line.rstrip()
    return line


def _share(of: int) -> int | None:
    width = output.width()
    return None if width is None else max(_NARROWEST_SHARE, width // of)


def _prefix(names: Sequence[str]) -> str:
    room = _share(3)
    if room is None or len(names) < 2 or all(cell_len(name) <= room for name in names):
        return ""
    columns = zip(*names, strict=False)
    common = itertools.takewhile(lambda letters: len(set(letters)) == 1, columns)
    words = re.match(r".*[\W_]", "".join(letter for letter, *_ in common), re.DOTALL)
    return words[0] if words else ""
