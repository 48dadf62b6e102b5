"""``ScalarStore``: scalars, collected block by block, as columns of each tag."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.scalar_columns import ScalarColumns
from runhooks.events.reading.scalars import Scalars


class ScalarStore:
    """The scalars of all tags. They are put together by tag when they are first asked for."""

    def __init__(self) -> None:
        self._columns: dict[int, Scalars] = {}
        self._where: list[dict[int, slice]] = []  # in each chunk, by the number of the tag
        self._chunks: tuple[list[NDArray[Any]], ...] = ([], [], [])

    def add(self, scalars: ScalarColumns, begin: int, end: int) -> None:
        """Add ``scalars[begin:end]``."""
        if begin == end:
            return
        ids = scalars.ids[begin:end]
        # Of 16 bits, for then it is sorted by radix.
        order = np.argsort(ids.astype(np.uint16) if ids.max() < 1 << 16 else ids, kind="stable")
        ids = ids[order]
        bounds = np.flatnonzero(np.diff(ids, prepend=-1, append=-1)).tolist()
        where = itertools.starmap(slice, itertools.pairwise(bounds))
        self._where.append(dict(zip(ids[bounds[:-1]].tolist(), where, strict=True)))
        columns = scalars.steps, scalars.values, scalars.wall_times
        for chunks, column in zip(self._chunks, columns, strict=True):
            chunks.append(column[begin:end][order])

    def columns(self) -> dict[int, Scalars]:
        """Return the columns of each tag, by its number."""
        if self._where:
            self._merge()
        return self._columns

    def _merge(self) -> None:
        touched = sorted(set().union(*self._where))
        merged: dict[int, list[NDArray[Any]]] = {tag: [] for tag in touched}
        for place, chunks in enumerate(self._chunks):
            for tag in touched:
                pieces = [self._columns[tag][place]] if tag in self._columns else []
                pieces += [
                    chunk[where[tag]]
                    for chunk, where in zip(chunks, self._where, strict=True)
                    if tag in where
                ]
                merged[tag].append(np.concatenate(pieces))
            chunks.clear()  # before the next column, to hold no more than one of them twice
        self._where.clear()
        self._columns |= {tag: Scalars(*columns) for tag, columns in merged.items()}
