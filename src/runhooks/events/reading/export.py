"""``Exported``: scalars in the formats of other tools."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import IO, Any

from numpy.typing import NDArray

from runhooks.events.place import place
from runhooks.events.reading.results import Scalars
from runhooks.events.reading.table import Table, add_hparams, long_table, wide_table
from runhooks.events.reading.table_lines import csv_lines, json_lines
from runhooks.stores.path import AnyPath, path_of
from runhooks.stores.replacing import replacing


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
