"""``Exported``: scalars in the formats of other tools."""

from __future__ import annotations

import csv
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.contexts import contextmanager
from runhooks.events.format.json_number import json_number
from runhooks.events.reading.results import Scalars

_ROWS = 10_000  # converted at a time

_ScalarsOfRuns = Mapping[str, Mapping[str, Scalars]]


class Table(NamedTuple):
    """Columns by name, all ``[n]``; ``missing``: where some of them have no value, bool ``[n]``."""

    columns: dict[str, NDArray[Any]]
    missing: dict[str, NDArray[np.bool_]]

    def rows(self) -> Iterator[list[Any]]:
        """Yield the rows as Python objects, None for a missing value."""
        length = len(self.columns["run"])
        for at in range(0, length, _ROWS):
            some = slice(at, at + _ROWS)
            columns = [
                _with_none(column[some], self.missing[name][some])
                if name in self.missing
                else column[some].tolist()
                for name, column in self.columns.items()
            ]
            yield from map(list, zip(*columns, strict=True))


def long_table(runs: _ScalarsOfRuns) -> Table:
    """Return a row for each point: run, tag, step, wall_time, value; run by run, tag by tag."""
    parts = [(run, tag, columns) for run, tags in runs.items() for tag, columns in tags.items()]
    counts = [len(columns.steps) for _, _, columns in parts]
    return Table(
        {
            "run": _repeated([run for run, _, _ in parts], counts),
            "tag": _repeated([tag for _, tag, _ in parts], counts),
            "step": _joined([columns.steps for _, _, columns in parts], np.int64),
            "wall_time": _joined([columns.wall_times for _, _, columns in parts], np.float64),
            "value": _joined([columns.values for _, _, columns in parts], np.float64),
        },
        {},
    )


def wide_table(runs: _ScalarsOfRuns) -> Table:
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
    columns: dict[str, NDArray[Any]] = {
        "run": _repeated(list(runs), counts),
        "step": _joined(list(steps.values()), np.int64),
    }
    missing = {}
    for tag in tags:
        columns[tag] = np.full(sum(counts), np.nan)
        missing[tag] = np.ones(sum(counts), np.bool_)
        begin = 0
        for (run, of_run), count in zip(runs.items(), counts, strict=True):
            if tag in of_run:
                at = begin + np.searchsorted(steps[run], of_run[tag].steps)
                columns[tag][at] = of_run[tag].values
                missing[tag][at] = False
            begin += count
    return Table(columns, missing)


def add_hparams(table: Table, hparams: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a column ``hparams/<name>`` for each hyper-parameter of the runs.

    Raises:
        ValueError: If a tag has the name of such a column.
    """
    places = {run: index for index, run in enumerate(hparams)}
    rows = np.array([places[run] for run in table.columns["run"]], np.int64)
    for name in sorted({name for of_run in hparams.values() for name in of_run}):
        column = f"hparams/{name}"
        if column in table.columns:
            raise ValueError(f"there is a tag {column!r} beside the hyper-parameter {name!r}")
        values = [of_run.get(name) for of_run in hparams.values()]
        missing = np.array([value is None for value in values])
        table.columns[column] = _of_one_type(values)[rows]
        if missing.any():
            table.missing[column] = missing[rows]


def _of_one_type(values: list[Any]) -> NDArray[Any]:
    types = {type(value) for value in values if value is not None}
    if types == {float}:
        return np.array(values, np.float64)  # None becomes NaN
    if types == {bool}:
        return np.array(values, object if None in values else np.bool_)
    return np.array([None if value is None else str(value) for value in values], object)


def _repeated(names: list[str], counts: list[int]) -> NDArray[Any]:
    return np.repeat(np.array(names, object), np.array(counts, np.int64))


def _joined(columns: list[Any], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *columns])


def _with_none(column: NDArray[Any], missing: NDArray[np.bool_]) -> list[Any]:
    objects = column.astype(object)
    objects[missing] = None
    return list(objects)


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
        return pd.DataFrame(self._table(wide, hparams).columns)

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
                for name, column in table.columns.items()
            }
        )

    def to_parquet(
        self, path: str | os.PathLike[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write the scalars to the Parquet file ``path``. Raises ImportError without pyarrow."""
        table = self.to_arrow(wide, hparams)
        from pyarrow import parquet

        parquet.write_table(table, os.fspath(path))

    def to_csv(
        self, path: str | os.PathLike[str] | IO[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write the scalars, below a line of names, to the file ``path`` or an open text file.

        NaN and infinities are written as ``nan``, ``inf`` and ``-inf``.
        """
        table = self._table(wide, hparams)
        with _opened(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            writer.writerows(table.rows())

    def to_json_lines(
        self, path: str | os.PathLike[str] | IO[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write a JSON object for each row to the file ``path`` or an open text file.

        NaN and infinities are written as the strings "NaN", "Infinity" and "-Infinity".
        """
        table = self._table(wide, hparams)
        names = list(table.columns)
        with _opened(path) as file:
            for row in table.rows():
                row_object = {
                    name: json_number(value) if isinstance(value, float) else value
                    for name, value in zip(names, row, strict=True)
                    if value is not None
                }
                file.write(json.dumps(row_object, ensure_ascii=False) + "\n")

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


@contextmanager
def _opened(path: str | os.PathLike[str] | IO[str]) -> Iterator[IO[str]]:
    if isinstance(path, str | os.PathLike):
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            yield file
    else:
        yield path
