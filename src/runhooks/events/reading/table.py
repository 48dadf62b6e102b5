"""``Table``: scalars as columns of one length, as other tools take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.results import Scalars

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
