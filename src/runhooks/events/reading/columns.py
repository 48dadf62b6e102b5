"""``ScalarStore``: scalars in the order of the file, and as columns of each tag."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.results import Scalars
from runhooks.events.reading.rows import ScalarRows

_TOGETHER = 1 << 12  # scalars
_TYPES = (np.int64, np.int32, np.int64, np.float64, np.float64)  # of a SingleScalar


#: A scalar of a record that was decoded alone: the record, the number of the tag, the step, the
#: value and the wall time.
SingleScalar: TypeAlias = tuple[int, int, int, float, float]


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


def in_order(records: int, found: list[ScalarRows], singles: list[SingleScalar]) -> ScalarColumns:
    """Return all scalars of a block in the order of its ``records``, so many.

    A record is in one of ``found`` or in ``singles``, which are in order.
    """
    single, *columns_of_singles = _columns(singles)
    counts = np.zeros(records + 1, np.int64)
    counts[1:] = np.bincount(single, minlength=records)
    for rows in found:
        counts[rows.records + 1] = rows.ids.shape[1]
    first = counts.cumsum()
    total = int(first[-1])
    ids, steps = np.empty(total, np.int32), np.empty(total, np.int64)
    values, wall_times = np.empty(total), np.empty(total)
    at = first[single] + np.arange(len(single)) - np.searchsorted(single, single)
    ids[at], steps[at], values[at], wall_times[at] = columns_of_singles
    for rows in found:
        at = first[rows.records][:, None] + np.arange(rows.ids.shape[1])
        ids[at], values[at] = rows.ids, rows.values
        steps[at], wall_times[at] = rows.steps[:, None], rows.wall_times[:, None]
    return ScalarColumns(ids, steps, values, wall_times, first)


def _columns(singles: list[SingleScalar]) -> list[NDArray[Any]]:
    columns = zip(*singles, strict=True) if singles else ((),) * len(_TYPES)
    return [np.array(column, dtype) for column, dtype in zip(columns, _TYPES, strict=True)]


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
        # Small tags share an array; one that somebody keeps does not keep all others.
        shared = bounds.searchsorted(np.arange(0, len(order), _TOGETHER)).tolist()
        cuts = dict.fromkeys([*shared, len(tags)])
        groups = [bounds[begin : end + 1] for begin, end in itertools.pairwise(cuts)]
        merged = zip(*[_of_tags(chunks, order, groups) for chunks in self._chunks], strict=True)
        known = self._columns
        for tag, new in zip(tags, map(Scalars._make, merged), strict=True):
            known[tag] = concatenated([known[tag], new]) if tag in known else new


def concatenated(pieces: list[Scalars]) -> Scalars:
    """Return ``pieces`` one after the other, without a copy if only one is not empty."""
    pieces = [piece for piece in pieces if len(piece.steps)]
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Scalars(np.empty(0, np.int64), np.empty(0), np.empty(0))
    steps, values, wall_times = zip(*pieces, strict=True)
    return Scalars(np.concatenate(steps), np.concatenate(values), np.concatenate(wall_times))


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
    chunks: list[NDArray[Any]], order: NDArray[np.int64], groups: list[NDArray[np.int64]]
) -> list[NDArray[Any]]:
    """Return the column of each tag, and forget its ``chunks``: one at a time is in memory twice.

    ``groups``: the bounds in ``order`` of some tags, which get an array together.
    """
    column = np.concatenate(chunks)
    chunks.clear()
    found = []
    for bounds in groups:
        together = column[order[bounds[0] : bounds[-1]]]
        places = (bounds - bounds[0]).tolist()
        found += [together[begin:end] for begin, end in itertools.pairwise(places)]
    return found
