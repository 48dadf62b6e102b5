"""Data frames of rows, as tbparse makes them: long, or wide with a column for each tag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.tensorboard.event_rows import TagRows

_LAST = ("wall_time", "dir_name", "file_name")


class FileRows(NamedTuple):
    """The rows of one event file; ``dir_name`` is relative to what was read."""

    dir_name: str
    file_name: str
    rows: list[TagRows]


class _Block(NamedTuple):
    """The rows of one tag of one file; ``begin``: where they begin among all."""

    file: FileRows
    rows: TagRows
    begin: int
    length: int


def frame(files: Iterable[FileRows], extra: set[str], pivot: bool) -> Any:
    """Return the rows of ``files`` as a ``pandas.DataFrame``.

    Args:
        files: The files.
        extra: Those of ``wall_time``, ``dir_name`` and ``file_name`` that become columns.
        pivot: Whether there is a column for each tag, and several values of it at one step are a
            list, rather than a row for each point.

    Raises:
        ImportError: pandas is not installed.
    """
    pd = _pandas()
    blocks = _blocks(files)
    if not blocks:
        return pd.DataFrame()
    return (_wide if pivot else _long)(pd, blocks, extra)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("SummaryReader needs pandas: pip install pandas") from error
    return pandas


def _blocks(files: Iterable[FileRows]) -> list[_Block]:
    blocks, begin = [], 0
    for file in files:
        for rows in file.rows:
            count = len(next(iter(rows.columns.values())))
            blocks.append(_Block(file, rows, begin, count))
            begin += count
    return [block for block in blocks if block.length]


def _long(pd: Any, blocks: list[_Block], extra: set[str]) -> Any:
    columns = _keys(pd, blocks, extra)
    columns["tag"] = _repeated(pd, blocks, lambda block: block.rows.tag)
    for name in blocks[0].rows.columns:
        columns[name] = _joined([block.rows.columns[name] for block in blocks])
    order: list[str] = [name for name in ("step", "tag") if name in columns]
    order += list(blocks[0].rows.columns)
    order += [name for name in _LAST if name in columns]
    made = pd.DataFrame({name: columns[name] for name in order})
    keys = [name for name in ("dir_name", "file_name", "tag", "step") if name in columns]
    return made.sort_values(keys, ignore_index=True, kind="stable")


def _wide(pd: Any, blocks: list[_Block], extra: set[str]) -> Any:
    columns = _keys(pd, blocks, extra)
    names = [name for name in ("dir_name", "file_name", "step") if name in columns]
    keys = pd.DataFrame({name: columns[name] for name in names})
    size = sum(block.length for block in blocks)
    if names:
        groups = keys.groupby(names, sort=True)
        of_rows = groups.ngroup().to_numpy()
        made = groups.size().reset_index()[names]
    else:  # hyperparameters, all in one row
        of_rows, made = np.zeros(size, np.int64), pd.DataFrame(index=range(1))
    found: dict[str, Any] = {name: made[name] for name in names}
    for name, cells in _tag_columns(blocks).items():
        rows = np.concatenate([np.arange(begin, begin + len(values)) for begin, values in cells])
        found[name] = _merged(of_rows[rows], _joined([v for _, v in cells]), len(made), of_rows)
    if "wall_time" in columns:
        found["wall_time"] = _merged(of_rows, columns["wall_time"], len(made), of_rows)
    middle = sorted(found.keys() - {"step", *_LAST})
    order = [name for name in ("step", *middle, *_LAST) if name in found]
    return pd.DataFrame({name: found[name] for name in order})


def _tag_columns(blocks: list[_Block]) -> dict[str, list[tuple[int, Any]]]:
    """Return the columns of a wide table: where the rows of each block begin, and its values."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for block in blocks:
        for name, values in block.rows.columns.items():
            column = block.rows.tag if name == "value" else f"{block.rows.tag}/{name}"
            found.setdefault(column, []).append((block.begin, values))
    return found


def _merged(
    groups: NDArray[np.int64], values: Any, count: int, of_rows: NDArray[np.int64]
) -> NDArray[Any] | list[Any]:
    """Return the values of each of ``count`` groups: NaN for none, a list for several."""
    if len(np.unique(groups)) == len(groups) and isinstance(values, np.ndarray):
        merged = np.full(count, np.nan)
        merged[groups] = values
        return (
            merged
            if len(groups) < count or values.dtype.kind == "f"
            else merged.astype(values.dtype)
        )
    cells: list[list[Any]] = [[] for _ in range(count)]
    rows_in_group = np.bincount(of_rows, minlength=count)
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    for group, value in zip(groups.tolist(), listed, strict=True):
        is_missing = rows_in_group[group] > 1 and isinstance(value, float) and value != value
        if not is_missing:
            cells[group] += value if isinstance(value, list) else [value]
    return [np.nan if not cell else cell[0] if len(cell) == 1 else cell for cell in cells]


def _keys(pd: Any, blocks: list[_Block], extra: set[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if blocks[0].rows.steps is not None:
        columns["step"] = np.concatenate([block.rows.steps for block in blocks])
        if "wall_time" in extra:
            columns["wall_time"] = np.concatenate([block.rows.wall_times for block in blocks])
    if "dir_name" in extra:
        columns["dir_name"] = _repeated(pd, blocks, lambda block: block.file.dir_name)
    if "file_name" in extra:
        columns["file_name"] = _repeated(pd, blocks, lambda block: block.file.file_name)
    return columns


def _repeated(pd: Any, blocks: list[_Block], name_of: Callable[[_Block], str]) -> Any:
    """Return a column of names, one for each row of each block."""
    names = [name_of(block) for block in blocks]
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    codes = np.repeat([known[name] for name in names], [block.length for block in blocks])
    return pd.Series(list(known)).take(codes).reset_index(drop=True)


def _joined(columns: Sequence[Any]) -> NDArray[Any] | list[Any]:
    if all(isinstance(column, np.ndarray) for column in columns):
        joined: NDArray[Any] = np.concatenate(columns)
        return joined
    lists = (it.tolist() if isinstance(it, np.ndarray) else it for it in columns)
    return [value for column in lists for value in column]
