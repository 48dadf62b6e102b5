"""``Exported``: scalars as a table, for other tools."""

from __future__ import annotations

import base64
import csv
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.trees import fields
from runhooks.events.format.event import SessionLog, SessionStatus
from runhooks.events.place import place
from runhooks.events.reading.results import Scalars
from runhooks.events.reading.rows import concatenated
from runhooks.stores.path import AnyPath, path_of, replacing


def json_number(value: float) -> float | str:
    """Return ``value``, or its name if it is not finite, as in Protocol Buffers."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_value(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, np.ndarray):
        return _list(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, SessionLog):
        return {**value._asdict(), "status": SessionStatus(value.status).name}
    if isinstance(value, os.PathLike):
        return str(value)
    if (known := fields(value)) is not None:
        return {name: json_value(it) for name, it in known.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_value(element) for element in value]
    return value


def _list(array: np.ndarray[Any, np.dtype[Any]]) -> Any:
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype == object:
        return _texts(array.tolist())
    if array.dtype.kind == "c":
        return _list(np.stack((array.real, array.imag), -1))
    numbers = array.astype(np.float64, copy=False)  # bfloat16 among them
    return numbers.tolist() if np.isfinite(numbers).all() else json_value(numbers.tolist())


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(element) for element in value]
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


class Exported(ABC):
    """Scalars that can be exported as a table.

    A long table has a row for each point, with the columns run, tag, step, wall_time and value. A
    wide table has a row for each step, with the columns run, step and one for each tag: its last
    value there. It raises ValueError if a tag is named ``run`` or ``step``. With ``hparams`` a
    column ``hparams/<name>`` follows for each hyper-parameter.
    """

    @abstractmethod
    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]: ...

    @abstractmethod
    def hparams_of_runs(self) -> Mapping[str, Mapping[str, Any]]: ...

    def to_pandas(self, wide: bool = False, hparams: bool = False) -> Any:
        """Return the scalars as a ``pandas.DataFrame``. Raises ImportError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pd.DataFrame(self._columns(wide, hparams))

    def to_arrow(self, wide: bool = False, hparams: bool = False) -> Any:
        """Return the scalars as a ``pyarrow.Table``. Raises ImportError without pyarrow."""
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ImportError("to_arrow needs pyarrow: pip install pyarrow") from error
        return pa.table(
            {
                name: pa.array(column, _arrow_type(pa, column), from_pandas=wide or name != _VALUE)
                for name, column in self._columns(wide, hparams).items()
            }
        )

    def to_parquet(
        self, path: str | os.PathLike[str] | IO[bytes], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write the scalars to the Parquet file, or URL, ``path``, or an open binary file."""
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

        NaN and infinities are ``nan``, ``inf`` and ``-inf``.
        """
        columns = self._columns(wide, hparams)
        with _opened(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(_rows(columns, wide))

    def to_json_lines(
        self, path: str | os.PathLike[str] | IO[str], wide: bool = False, hparams: bool = False
    ) -> None:
        """Write a JSON object for each row to the file or URL ``path``, or an open text file.

        NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".
        """
        columns = self._columns(wide, hparams)
        encode = json.JSONEncoder(ensure_ascii=False).encode
        with _opened(path) as file:
            for row in _rows(columns, wide):
                known = {
                    name: json_number(it) if isinstance(it, float) else it
                    for name, it in zip(columns, row, strict=True)
                    if it is not None
                }
                file.write(encode(known) + "\n")

    def _columns(self, wide: bool, hparams: bool) -> _Columns:
        of_runs = self.scalars_of_runs()
        columns, counts = _wide(of_runs) if wide else _long(of_runs)
        if hparams:
            _add_hparams(columns, counts, [*self.hparams_of_runs().values()])
        return columns


_Columns: TypeAlias = dict[str, NDArray[Any]]
_ScalarsOfRuns: TypeAlias = Mapping[str, Mapping[str, Scalars]]

_VALUE = "value"  # the column of a long table in which NaN is a value
_ROWS_AT_ONCE = 1 << 14


def _long(runs: _ScalarsOfRuns) -> tuple[_Columns, list[int]]:
    tags = [tag for of_run in runs.values() for tag in of_run]
    parts = [columns for of_run in runs.values() for columns in of_run.values()]
    counts = [sum(len(it.steps) for it in of_run.values()) for of_run in runs.values()]
    steps, values, wall_times = concatenated(parts)
    columns = {
        "run": _repeated([*runs], counts),
        "tag": _repeated(tags, [len(columns.steps) for columns in parts]),
        "step": steps,
        "wall_time": wall_times,
        _VALUE: values,
    }
    return columns, counts


def _wide(runs: _ScalarsOfRuns) -> tuple[_Columns, list[int]]:
    tags = sorted({tag for of_run in runs.values() for tag in of_run})
    clash = {"run", "step"}.intersection(tags)
    if clash:
        raise ValueError(
            f"a wide table has a column {clash.pop()!r} already: rename the tag or use a long table"
        )
    steps = [np.unique(concatenated([*of_run.values()]).steps) for of_run in runs.values()]
    counts = [len(of_run) for of_run in steps]
    columns = {
        "run": _repeated([*runs], counts),
        "step": np.concatenate([np.empty(0, np.int64), *steps]),
    }
    for tag in tags:
        values = columns[tag] = np.full(sum(counts), np.nan)
        begin = 0
        for of_run, known in zip(runs.values(), steps, strict=True):
            if tag in of_run:
                values[begin + np.searchsorted(known, of_run[tag].steps)] = of_run[tag].values
            begin += len(known)
    return columns, counts


def _add_hparams(columns: _Columns, counts: list[int], hparams: list[Mapping[str, Any]]) -> None:
    for name in sorted({name for of_run in hparams for name in of_run}):
        column = f"hparams/{name}"
        if column in columns:
            raise ValueError(f"there is a tag {column!r} beside the hyper-parameter {name!r}")
        columns[column] = np.repeat(_of_one_type([it.get(name) for it in hparams]), counts)


def _of_one_type(values: list[Any]) -> NDArray[Any]:
    types = {type(value) for value in values if value is not None}
    if types == {float}:
        return np.array(values, np.float64)  # None becomes NaN
    if types == {bool}:
        return np.array(values, object if None in values else np.bool_)
    return np.array([None if value is None else str(value) for value in values], object)


def _repeated(names: list[str], counts: list[int]) -> NDArray[Any]:
    return np.repeat(np.array(names, object), np.array(counts, np.int64))


def _rows(columns: _Columns, wide: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, with None where there is no value."""
    size = len(columns["step"])
    for begin in range(0, size, _ROWS_AT_ONCE):
        some = {name: it[begin : begin + _ROWS_AT_ONCE] for name, it in columns.items()}
        cells = [
            [None if it != it else it for it in column.tolist()]
            if column.dtype.kind == "f" and (wide or name != _VALUE)
            else column.tolist()
            for name, column in some.items()
        ]
        yield from zip(*cells, strict=True)


def _arrow_type(pa: Any, column: NDArray[Any]) -> Any:
    if column.dtype != object:
        return None
    return pa.bool_() if any(isinstance(value, bool) for value in column) else pa.string()


@contextmanager
def _opened(path: str | os.PathLike[str] | IO[str]) -> Iterator[IO[str]]:
    if not isinstance(path, str | os.PathLike):
        yield path
        return
    with replacing(_target(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
        yield file


def _target(path: str | os.PathLike[str]) -> AnyPath:
    return path_of(place(path=path))
