"""``ScalarStore``: scalars in the order of the file, and as columns of each tag."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.results import Scalars
from runhooks.events.reading.scalar_reader import ScalarPiece

_TOGETHER = 1 << 12  # scalars


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
        self._ids: list[NDArray[np.int32]] = []
        self._chunks: tuple[list[NDArray[Any]], ...] = ([], [], [])

    def add(self, scalars: ScalarColumns, begin: int, end: int) -> None:
        """Add ``scalars[begin:end]``."""
        if begin == end:
            return
        self._ids.append(scalars.ids[begin:end])
        columns = scalars.steps, scalars.values, scalars.wall_times
        for chunks, column in zip(self._chunks, columns, strict=True):
            chunks.append(column[begin:end])

    def columns(self) -> dict[int, Scalars]:
        """Return the columns of each tag, by the number of the tag."""
        if self._ids:
            self._merge()
        return self._columns

    def _merge(self) -> None:
        order, tags, bounds = _by_tag(self._ids)
        merged = zip(*[_of_tags(chunks, order, bounds) for chunks in self._chunks], strict=True)
        known = self._columns
        for tag, new in zip(tags, map(Scalars._make, merged), strict=True):
            old = known.get(tag)
            pairs = () if old is None else zip(old, new, strict=True)
            known[tag] = new if old is None else Scalars(*map(np.concatenate, pairs))


def _by_tag(
    chunks: list[NDArray[np.int32]],
) -> tuple[NDArray[np.int64], list[int], NDArray[np.int64]]:
    """Return the order of scalars by tag, the tags, and where each begins, and the last ends.

    ``chunks``: the numbers of their tags; they are forgotten.
    """
    ids = np.concatenate(chunks)
    chunks.clear()
    order = _by_number(ids)
    ids = ids[order]
    bounds = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1], [True])))
    return order, ids[bounds[:-1]].tolist(), bounds


def _by_number(ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the indices that sort ``ids``, equal ones in order."""
    # NumPy sorts 16 bits by radix.
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    if ids.max() >> 16:
        order = order[np.argsort((ids >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def _of_tags(
    chunks: list[NDArray[Any]], order: NDArray[np.int64], bounds: NDArray[np.int64]
) -> list[NDArray[Any]]:
    """Return the column of each tag, which is at ``order[bounds[n]:bounds[n + 1]]`` of ``chunks``.

    The chunks are forgotten, so that only one column is in memory twice.
    """
    column = np.concatenate(chunks)
    chunks.clear()
    # Small tags share an array; one that somebody keeps does not keep all others.
    first = np.unique(np.searchsorted(bounds, np.arange(0, len(order), _TOGETHER))).tolist()
    found = []
    for begin, end in itertools.pairwise([*first, len(bounds) - 1]):
        places = bounds[begin : end + 1]
        shared = column[order[places[0] : places[-1]]]
        found += [shared[a:b] for a, b in itertools.pairwise((places - places[0]).tolist())]
    return found
