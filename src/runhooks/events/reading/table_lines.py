"""The rows of a table as lines of text: comma-separated values, and objects of JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.json_number import json_number
from runhooks.events.format.number_text import PAD, Text, float_texts, int_texts, texts
from runhooks.events.reading.table import Column, Repeated, Table

_CHUNK_BYTES = 1 << 22  # of lines that are made at a time
_NUMBER_BYTES = 32
_SURROGATES = "surrogatepass"  # names of files may have some

_Cell = Callable[[Any], str]


def csv_lines(table: Table) -> Iterator[str]:
    """Yield the names of the columns and the rows as comma-separated values, many at a time."""
    yield _csv_row(list(table.columns))
    before = ["", *[","] * (len(table.columns) - 1)]
    yield from _lines(table, before, "\n", _csv_cell, keep_before=True)


def json_lines(table: Table) -> Iterator[str]:
    """Yield the rows as objects of JSON without the missing values, a line each, many at a time."""
    names = [json.dumps(name, ensure_ascii=False) for name in table.columns]
    before = [f"{', ' if place else '{'}{name}: " for place, name in enumerate(names)]
    yield from _lines(table, before, "}\n", _json_cell, keep_before=False)


def _csv_row(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    return repr(value) if isinstance(value, float) else _csv_row([value, 0])[: -len(",0\n")]


def _json_cell(value: Any) -> str:
    return json.dumps(json_number(value) if isinstance(value, float) else value, ensure_ascii=False)


def _lines(
    table: Table, before: list[str], end: str, cell: _Cell, keep_before: bool
) -> Iterator[str]:
    """Yield the rows.

    Args:
        table: The table.
        before: What precedes the cell of each column.
        end: What ends a row.
        cell: Returns the text of a value.
        keep_before: Whether a missing cell is preceded as others are.
    """
    columns = [_cells(column, cell) for column in table.columns.values()]
    leads = [np.frombuffer(text.encode(errors=_SURROGATES), np.uint8) for text in (*before, end)]
    width = sum(map(len, leads)) + sum(width for width, _ in columns)
    length, at_once = len(table.runs), max(1, _CHUNK_BYTES // width)
    for begin in range(0, length, at_once):
        some = slice(begin, min(begin + at_once, length))
        count = some.stop - begin
        parts: list[Text] = []
        for name, lead, (_, text_of) in zip(table.columns, leads, columns, strict=False):
            parts += [np.broadcast_to(lead, (count, len(lead))), text_of(some)]
            if name in table.missing:
                which = table.missing[name][some, None]
                parts[-1] = np.where(which, np.uint8(PAD), parts[-1])
                if not keep_before:
                    parts[-2] = np.where(which, np.uint8(PAD), parts[-2])
        parts.append(np.broadcast_to(leads[-1], (count, len(leads[-1]))))
        rows = np.concatenate(parts, axis=1)
        yield rows[rows != PAD].tobytes().decode(errors=_SURROGATES)


def _cells(column: Column, cell: _Cell) -> tuple[int, Callable[[slice], Text]]:
    """Return how long a cell may be, about, and what makes those of some rows."""
    if isinstance(column, Repeated):
        known = [cell(value).encode(errors=_SURROGATES) for value in column.values.tolist()]
        return max(map(len, known), default=0), partial(_repeated, known, column.codes)
    of_numbers = int_texts if column.dtype.kind == "i" else partial(float_texts, other=cell)
    return _NUMBER_BYTES, lambda some: of_numbers(column[some])


def _repeated(known: list[bytes], codes: NDArray[np.int64], some: slice) -> Text:
    used, places = np.unique(codes[some], return_inverse=True)
    return texts([known[code] for code in used.tolist()])[places]
