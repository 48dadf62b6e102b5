"""``Table``: scalars as columns of one length, and as lines of text for other tools."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.events.place import place
from runhooks.events.reading.results import Scalars
from runhooks.stores.path import AnyPath, path_of, replacing


def json_number(value: float) -> float | str:
    """Return ``value``, or ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``, as in Protocol Buffers."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


ScalarsOfRuns: TypeAlias = Mapping[str, Mapping[str, Scalars]]


class Repeated(NamedTuple):
    """A column in which few values occur often: ``values[codes]``; ``codes``: int64 ``[n]``."""

    values: NDArray[Any]
    codes: NDArray[np.int64]

    def column(self) -> NDArray[Any]:
        """Return the values of all rows: ``[n]``."""
        column: NDArray[Any] = self.values[self.codes]
        return column


Column: TypeAlias = NDArray[Any] | Repeated


class Table(NamedTuple):
    """Columns by name, all ``[n]``.

    ``missing``: where some of them have no value, bool ``[n]``. ``runs``: the place of the run of
    each row among all runs, int64 ``[n]``.
    """

    columns: dict[str, Column]
    missing: dict[str, NDArray[np.bool_]]
    runs: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns as arrays, names as objects."""
        return {
            name: column.column() if isinstance(column, Repeated) else column
            for name, column in self.columns.items()
        }


def long_table(runs: ScalarsOfRuns) -> Table:
    """Return a row for each point: run, tag, step, wall_time, value; run by run, tag by tag."""
    parts = [columns for of_run in runs.values() for columns in of_run.values()]
    tags = [tag for of_run in runs.values() for tag in of_run]
    names = list(dict.fromkeys(tags))
    places = {name: place for place, name in enumerate(names)}
    counts = [len(columns.steps) for columns in parts]
    run_of_part = _repeat(range(len(runs)), [len(of_run) for of_run in runs.values()])
    of_rows = _repeat(run_of_part, counts)
    return Table(
        {
            "run": _repeated(runs, of_rows),
            "tag": _repeated(names, _repeat([places[tag] for tag in tags], counts)),
            "step": _joined([columns.steps for columns in parts], np.int64),
            "wall_time": _joined([columns.wall_times for columns in parts], np.float64),
            "value": _joined([columns.values for columns in parts], np.float64),
        },
        {},
        of_rows,
    )


def wide_table(runs: ScalarsOfRuns) -> Table:
    """Return a row for each step of each run: run, step, and the last value of each tag there.

    Raises:
        ValueError: If a tag has the name of one of the other two columns.
    """
    tags = sorted({tag for of_run in runs.values() for tag in of_run})
    clash = {"run", "step"}.intersection(tags)
    if clash:
        raise ValueError(
            f"a wide table has a column {clash.pop()!r} already: rename the tag or use a long table"
        )
    steps = {
        run: np.unique(_joined([columns.steps for columns in of_run.values()], np.int64))
        for run, of_run in runs.items()
    }
    counts = [len(of_run) for of_run in steps.values()]
    of_rows = _repeat(range(len(runs)), counts)
    columns: dict[str, Column] = {
        "run": _repeated(runs, of_rows),
        "step": _joined(list(steps.values()), np.int64),
    }
    missing = {}
    for tag in tags:
        values = np.full(sum(counts), np.nan)
        missing[tag] = np.ones(sum(counts), np.bool_)
        begin = 0
        for (run, of_run), count in zip(runs.items(), counts, strict=True):
            if tag in of_run:
                at = begin + np.searchsorted(steps[run], of_run[tag].steps)
                values[at] = of_run[tag].values
                missing[tag][at] = False
            begin += count
        columns[tag] = values
    return Table(columns, missing, of_rows)


def add_hparams(table: Table, hparams: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a column ``hparams/<name>`` for each hyper-parameter of the runs, in their order.

    Raises:
        ValueError: If a tag has the name of such a column.
    """
    for name in sorted({name for of_run in hparams.values() for name in of_run}):
        column = f"hparams/{name}"
        if column in table.columns:
            raise ValueError(f"there is a tag {column!r} beside the hyper-parameter {name!r}")
        values = [of_run.get(name) for of_run in hparams.values()]
        missing = np.array([value is None for value in values])
        table.columns[column] = Repeated(_of_one_type(values), table.runs)
        if missing.any():
            table.missing[column] = missing[table.runs]


def _of_one_type(values: list[Any]) -> NDArray[Any]:
    types = {type(value) for value in values if value is not None}
    if types == {float}:
        return np.array(values, np.float64)  # None becomes NaN
    if types == {bool}:
        return np.array(values, object if None in values else np.bool_)
    return np.array([None if value is None else str(value) for value in values], object)


def _repeat(codes: Iterable[int], counts: list[int]) -> NDArray[np.int64]:
    return np.repeat(np.array([*codes], np.int64), np.array(counts, np.int64))


def _repeated(names: Iterable[str], codes: NDArray[np.int64]) -> Repeated:
    return Repeated(np.array([*names], object), codes)


def _joined(columns: list[Any], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *columns])


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


class Exported(ABC):
    """Scalars that can be exported as a table.

    A long table has a row for each point, with the columns run, tag, step, wall_time and value, run
    by run and tag by tag. A wide table has a row for each step, with the columns run, step and one
    for each tag: the last value written at that step, or no value (NaN in pandas). A wide table
    raises ValueError if a tag is named ``run`` or ``step``. With ``hparams`` a column
    ``hparams/<name>`` follows for each hyper-parameter that was read.
    """

    @abstractmethod
    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        """Return the scalars of the table: by run, then by tag."""

    @abstractmethod
    def hparams_of_runs(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the hyper-parameters of the table: by run, then by name."""

    def to_pandas(self, wide: bool = False, hparams: bool = False) -> Any:
        """Return the scalars as a ``pandas.DataFrame``. Raises ImportError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pd.DataFrame(self._table(wide, hparams).arrays())

    def to_arrow(self, wide: bool = False, hparams: bool = False) -> Any:
        """Return the scalars as a ``pyarrow.Table``. Raises ImportError without pyarrow."""
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ImportError("to_arrow needs pyarrow: pip install pyarrow") from error
        table = self._table(wide, hparams)
        return pa.table(
            {
                name: pa.array(column, _arrow_type(pa, column), table.missing.get(name))
                for name, column in table.arrays().items()
            }
        )

    def to_parquet(
        self, path: str | os.PathLike[str] | IO[bytes], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write the scalars to the Parquet file, or URL, ``path``, or an open binary file.

        Raises ImportError without pyarrow.
        """
        table = self.to_arrow(wide, hparams)
        from pyarrow import parquet

        if not isinstance(path, str | os.PathLike):
            content = BytesIO()  # a pipe does not tell where it is
            parquet.write_table(table, content)
            path.write(content.getbuffer())
            return
        # Given a path, it would look for the scheme of a URL in it.
        with replacing(_target(path)) as part, part.open("wb") as file:
            parquet.write_table(table, file)

    def to_csv(
        self, path: str | os.PathLike[str] | IO[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write the scalars, below a line of names, to the file or URL ``path``, or an open file.

        NaN and infinities are written as ``nan``, ``inf`` and ``-inf``.
        """
        _write(csv_lines(self._table(wide, hparams)), path)

    def to_json_lines(
        self, path: str | os.PathLike[str] | IO[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write a JSON object for each row to the file or URL ``path``, or an open text file.

        NaN and infinities are written as the strings "NaN", "Infinity" and "-Infinity".
        """
        _write(json_lines(self._table(wide, hparams)), path)

    def _table(self, wide: bool, hparams: bool) -> Table:
        table = (wide_table if wide else long_table)(self.scalars_of_runs())
        if hparams:
            add_hparams(table, self.hparams_of_runs())
        return table


def _arrow_type(pa: Any, column: NDArray[Any]) -> Any:
    """Return the type of a column of objects, which may be empty; None for any other."""
    if column.dtype != object:
        return None
    return pa.bool_() if any(isinstance(value, bool) for value in column) else pa.string()


def _write(pieces: Iterable[str], path: str | os.PathLike[str] | IO[str]) -> None:
    if not isinstance(path, str | os.PathLike):
        for piece in pieces:
            path.write(piece)
        return
    with replacing(_target(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
        _write(pieces, file)


def _target(path: str | os.PathLike[str]) -> AnyPath:
    return path_of(place(path=path))
