"""``ScalarStore``: scalars in the order of the file, and as columns of each tag."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.results import Scalars
from runhooks.events.reading.scalar_reader import ScalarPiece

_FEW = 64  # scalars: of so few no copy is made that frees the memory of the others


class SingleScalar(NamedTuple):
    """A scalar of a record that was decoded alone."""

    record: int
    tag_id: int
    step: int
    wall_time: float
    value: float


class ScalarColumns(NamedTuple):
    """Scalars in the order in which they were written.

    Attributes:
        ids: The numbers of their tags, int32 ``[n]``.
        steps: int64 ``[n]``.
        values: float64 ``[n]``.
        wall_times: Seconds since the epoch, float64 ``[n]``.
        first: The index of the first scalar of each record, int64 ``[records + 1]``.
    """

    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]
    first: NDArray[np.int64]


def in_order(records: int, pieces: list[ScalarPiece], singles: list[SingleScalar]) -> ScalarColumns:
    """Return all scalars of a block in the order of its ``records``, so many.

    A record is in one of ``pieces`` or in ``singles``, which are in order.
    """
    pieces = pieces + _as_pieces(singles)
    counts = np.zeros(records + 1, np.int64)
    for piece in pieces:
        counts[piece.records + 1] = piece.ids.shape[1]
    first = counts.cumsum()
    total = int(first[-1])
    ids, steps = np.empty(total, np.int32), np.empty(total, np.int64)
    values, wall_times = np.empty(total), np.empty(total)
    for piece in pieces:
        for place in range(piece.ids.shape[1]):
            at = first[piece.records] + place
            ids[at] = piece.ids[:, place]
            values[at] = piece.values[:, place]
            steps[at] = piece.steps
            wall_times[at] = piece.wall_times
    return ScalarColumns(ids, steps, values, wall_times, first)


def _as_pieces(singles: list[SingleScalar]) -> list[ScalarPiece]:
    """Return a piece for all records with the same number of scalars."""
    if not singles:
        return []
    columns = [np.array(column) for column in zip(*singles, strict=True)]
    record, tag_id, step, wall_time, value = columns
    bounds = np.flatnonzero(np.concatenate(([True], record[1:] != record[:-1], [True])))
    counts = np.diff(bounds)
    of_record = np.repeat(counts, counts)
    pieces = []
    for count in sorted(set(counts.tolist())):
        chosen = of_record == count
        pieces.append(
            ScalarPiece(
                record[chosen][::count],
                tag_id[chosen].reshape(-1, count).astype(np.int32),
                step[chosen][::count].astype(np.int64),
                wall_time[chosen][::count].astype(np.float64),
                value[chosen].reshape(-1, count).astype(np.float64),
            )
        )
    return pieces


class ScalarStore:
    """The scalars of all tags, collected block by block and merged when they are asked for."""

    def __init__(self) -> None:
        self._columns: dict[int, Scalars] = {}
        self._where: list[dict[int, slice]] = []  # in each chunk, by the number of the tag
        self._chunks: tuple[list[NDArray[Any]], ...] = ([], [], [])

    def add(self, scalars: ScalarColumns, begin: int, end: int) -> None:
        """Add ``scalars[begin:end]``."""
        if begin == end:
            return
        ids = scalars.ids[begin:end]
        # NumPy sorts 16 bits by radix.
        order = np.argsort(ids.astype(np.uint16) if ids.max() < 1 << 16 else ids, kind="stable")
        ids = ids[order]
        bounds = np.flatnonzero(np.diff(ids, prepend=-1, append=-1)).tolist()
        where = itertools.starmap(slice, itertools.pairwise(bounds))
        self._where.append(dict(zip(ids[bounds[:-1]].tolist(), where, strict=True)))
        columns = scalars.steps, scalars.values, scalars.wall_times
        for chunks, column in zip(self._chunks, columns, strict=True):
            chunks.append(column[begin:end][order])

    def columns(self) -> dict[int, Scalars]:
        """Return the columns of each tag, by the number of the tag."""
        if self._where:
            self._merge()
        return self._columns

    def _merge(self) -> None:
        pieces: dict[int, list[tuple[int, slice]]] = {}
        for chunk, tags in enumerate(self._where):
            for tag, where in tags.items():
                pieces.setdefault(tag, []).append((chunk, where))
        merged = [self._merged(place, pieces) for place in range(len(self._chunks))]
        self._where.clear()
        self._columns |= zip(
            pieces, itertools.starmap(Scalars, zip(*merged, strict=True)), strict=True
        )

    def _merged(self, place: int, pieces: dict[int, list[tuple[int, slice]]]) -> list[NDArray[Any]]:
        """Return the column ``place`` of each tag of ``pieces``, and forget its chunks."""
        chunks, merged = self._chunks[place], []
        for tag, of_tag in pieces.items():
            new = [chunks[chunk][where] for chunk, where in of_tag]
            old = self._columns.get(tag)
            if old is not None:
                new.insert(0, old[place])
            if len(new) == 1 and len(new[0]) < _FEW:
                merged.append(new[0])
            else:
                merged.append(np.concatenate(new))
        chunks.clear()  # before the next column, so that only one is in memory twice
        return merged
