"""``Table``: scalars in rows, a row a point or a row a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.scalars import Scalars

_ROWS = 10_000  # made at a time

_ScalarsOfRuns = Mapping[str, Mapping[str, Scalars]]


class Table(NamedTuple):
    """``columns``: by name, all of one length. ``missing``: where a column has nothing, as bool."""

    columns: dict[str, NDArray[Any]]
    missing: dict[str, NDArray[np.bool_]]

    def rows(self) -> Iterator[list[Any]]:
        """Yield the rows, as Python's objects, None for what is missing."""
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
    """Return a row a point: run, tag, step, wall_time, value; run by run and tag by tag."""
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

    Raises ValueError if a tag is called as one of the other two columns.
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


def _repeated(names: list[str], counts: list[int]) -> NDArray[Any]:
    return np.repeat(np.array(names, object), np.array(counts, np.int64))


def _joined(columns: list[Any], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *columns])


def _with_none(column: NDArray[Any], missing: NDArray[np.bool_]) -> list[Any]:
    objects = column.astype(object)
    objects[missing] = None
    return list(objects)
