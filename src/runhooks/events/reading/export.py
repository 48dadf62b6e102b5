"""``Exported``: scalars in the formats of others."""

from __future__ import annotations

import csv
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from runhooks.events.json_number import json_number
from runhooks.events.reading.scalars import Scalars
from runhooks.events.reading.table import Table, long_table, wide_table


class Exported(ABC):
    """Scalars that can be had as a table.

    A long table has the columns run, tag, step, wall_time, value and a row a point, run by run and
    tag by tag. A wide one has run, step and a column a tag: a row for each step, with the last
    value written at it; where a tag has none: NaN in pandas, else nothing. It raises ValueError if
    a tag is called ``run`` or ``step``.
    """

    @abstractmethod
    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        """Return what goes into the table: names of runs, tags, columns."""

    def to_pandas(self, wide: bool = False) -> Any:
        """Return the scalars as a ``pandas.DataFrame``. Raises ImportError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pd.DataFrame(self._table(wide).columns)

    def to_arrow(self, wide: bool = False) -> Any:
        """Return the scalars as a ``pyarrow.Table``. Raises ImportError without pyarrow."""
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ImportError("to_arrow needs pyarrow: pip install pyarrow") from error
        table = self._table(wide)
        return pa.table(
            {
                # A string column is one even if it is empty.
                name: pa.array(
                    column, pa.string() if column.dtype == object else None, table.missing.get(name)
                )
                for name, column in table.columns.items()
            }
        )

    def to_parquet(self, path: str | os.PathLike[str], wide: bool = False) -> None:
        """Write the scalars to the Parquet file ``path``. Raises ImportError without pyarrow."""
        table = self.to_arrow(wide)
        from pyarrow import parquet

        parquet.write_table(table, os.fspath(path))

    def to_csv(self, path: str | os.PathLike[str] | IO[str], wide: bool = False) -> None:
        """Write the scalars, after a line of names, to the file ``path`` or an open text file.

        NaN and infinities are ``nan``, ``inf`` and ``-inf``.
        """
        table = self._table(wide)
        with _opened(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            writer.writerows(table.rows())

    def to_json_lines(self, path: str | os.PathLike[str] | IO[str], wide: bool = False) -> None:
        """Write a JSON object a row to the file ``path`` or an open text file.

        NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".
        """
        table = self._table(wide)
        names = list(table.columns)
        with _opened(path) as file:
            for row in table.rows():
                row_object = {
                    name: json_number(value) if isinstance(value, float) else value
                    for name, value in zip(names, row, strict=True)
                    if value is not None
                }
                file.write(json.dumps(row_object, ensure_ascii=False) + "\n")

    def _table(self, wide: bool) -> Table:
        return (wide_table if wide else long_table)(self.scalars_of_runs())


@contextmanager
def _opened(path: str | os.PathLike[str] | IO[str]) -> Iterator[IO[str]]:
    if isinstance(path, str | os.PathLike):
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            yield file
    else:
        yield path
