"""The rows of a table as lines of text: comma-separated values, and objects of JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from runhooks.events.format.json_number import json_number
from runhooks.events.reading.table import Column, Repeated, Table

_ROWS_AT_ONCE = 1 << 14


def csv_lines(table: Table) -> Iterator[str]:
    """Yield the names of the columns and the rows as comma-separated values, many at a time."""
    yield _csv_row(list(table.columns))
    for some in _parts(table):
        cells = [_cells(table, name, some, _csv_cell) for name in table.columns]
        yield "\n".join([*map(",".join, zip(*cells, strict=True)), ""])


def json_lines(table: Table) -> Iterator[str]:
    """Yield the rows as objects of JSON without the missing values, a line each, many at a time."""
    named = {name: f"{json.dumps(name, ensure_ascii=False)}: " for name in table.columns}
    for some in _parts(table):
        cells = [
            [cell and start + cell for cell in _cells(table, name, some, _json_cell)]
            for name, start in named.items()
        ]
        for row in zip(*cells, strict=True):
            yield f"{{{', '.join(filter(None, row))}}}\n"


def _parts(table: Table) -> Iterator[slice]:
    for begin in range(0, len(table.runs), _ROWS_AT_ONCE):
        yield slice(begin, begin + _ROWS_AT_ONCE)


def _cells(table: Table, name: str, some: slice, text: Callable[[Any], str]) -> list[str]:
    """Return some cells of a column, each what ``text`` makes of its value; missing ones empty."""
    column: Column = table.columns[name]
    if isinstance(column, Repeated):
        known = [text(value) for value in column.values.tolist()]
        cells = [known[code] for code in column.codes[some].tolist()]
    elif np.isfinite(column[some]).all():
        cells = list(map(repr, column[some].tolist()))
    else:
        cells = list(map(text, column[some].tolist()))
    for row in np.flatnonzero(table.missing[name][some]) if name in table.missing else ():
        cells[row] = ""
    return cells


def _csv_row(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    return _csv_row([value, 0])[: -len(",0\n")]


def _json_cell(value: Any) -> str:
    return json.dumps(json_number(value) if isinstance(value, float) else value, ensure_ascii=False)
