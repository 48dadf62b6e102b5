"""``write_table``: columns, as many as the terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from runhooks.cli import output
from runhooks.cli.formats import listed

_GAP = 2
_NARROWEST_NAME = 8
_CURVE = range(8, 33)
_RANK_OF_CURVE = 3


class Column(NamedTuple):
    """One column: its title and a cell a row.

    ``rank``: where there is no room for all, those with the highest ranks are left out; those of
    rank 0 never are. ``styles``: that of each cell, as rich names them.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        """The columns of the terminal that it takes."""
        return max(cell_len(text) for text in (self.title, *self.cells))


def write_table(columns: Sequence[Column], curve: Callable[[int, int], str] | None = None) -> None:
    """Print ``columns``, the first of which holds names and is wrapped if nothing else helps.

    ``curve(row, width)`` draws the last column; for it those of rank 3 and above may have to go.
    """
    room = output.width()
    wanted = _GAP + _CURVE[0] if curve is not None and output.has_blocks() else 0
    shown, hidden = _fitting(columns, room, wanted)
    widths = [column.width for column in shown]
    if room is not None and _total(shown) > room:
        widths[0] = max(_NARROWEST_NAME, widths[0] - _total(shown) + room)
    left = _CURVE[-1] if room is None else min(_CURVE[-1], room - _total(shown) - _GAP)
    if curve is not None and wanted and left in _CURVE:
        rows = range(len(shown[0].cells))
        cells = [curve(row, left) for row in rows]
        shown.append(Column("curve", cells, left=True, styles=["cyan"] * len(rows)))
        widths.append(left)
    output.write(_line([(column.title, "bold") for column in shown], shown, widths))
    for row in range(len(shown[0].cells)):
        _write_row(row, shown, widths)
    if hidden:
        names = listed([column.title for column in hidden])
        output.say(f"{names}: in a wider terminal, or with --json", style="dim")


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _fitting(
    columns: Sequence[Column], room: int | None, for_curve: int
) -> tuple[list[Column], list[Column]]:
    shown, hidden = [column for column in columns if any(column.cells)], list[Column]()
    while room is not None:
        last = max(reversed(shown), key=lambda column: column.rank)
        wanted = for_curve if last.rank >= _RANK_OF_CURVE else 0
        if last.rank == 0 or _total(shown) + wanted <= room:
            break
        shown = [column for column in shown if column is not last]
        hidden.insert(0, last)
    return shown, hidden


def _write_row(row: int, columns: Sequence[Column], widths: Sequence[int]) -> None:
    pieces = chop_cells(columns[0].cells[row], widths[0]) or [""]
    cells = [(column.cells[row], column.styles[row] if column.styles else "") for column in columns]
    output.write(_line([(pieces[0], cells[0][1]), *cells[1:]], columns, widths))
    for piece in pieces[1:]:
        output.write(piece, style=cells[0][1])


def _line(
    cells: Sequence[tuple[str, str]], columns: Sequence[Column], widths: Sequence[int]
) -> Text:
    line = Text()
    for (text, style), column, width in zip(cells, columns, widths, strict=True):
        padding = " " * (width - cell_len(text))
        gap = " " * _GAP if line else ""
        line.append(gap if column.left else gap + padding)
        line.append(text, style)
        line.append(padding if column.left else "")
    line.rstrip()
    return line
