"""``ScalarColumns``: the scalars of many records, back in the order of these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.scalar_reader import ScalarPiece


class SingleScalar(NamedTuple):
    """A scalar that was read alone."""

    record: int
    tag_id: int
    step: int
    wall_time: float
    value: float


class ScalarColumns(NamedTuple):
    """Scalars in the order in which they were written.

    ``ids``: int32 ``[n]``, the numbers of their tags. ``steps``: int64 ``[n]``. ``values``,
    ``wall_times``: float64 ``[n]``. ``first``: int64 ``[records + 1]``, how many of the scalars
    come before those of each record.
    """

    ids: NDArray[np.int32]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]
    first: NDArray[np.int64]


def in_order(records: int, pieces: list[ScalarPiece], singles: list[SingleScalar]) -> ScalarColumns:
    """Return the scalars of as many ``records``, of which each is in one piece or among the others.

    ``singles`` are in order.
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
    """Return a piece for each number of scalars that a record has."""
    if not singles:
        return []
    columns = [np.array(column) for column in zip(*singles, strict=True)]
    record, tag_id, step, wall_time, value = columns
    index, counts = np.unique(record, return_counts=True)
    pieces = []
    for count in np.unique(counts).tolist():
        chosen = np.isin(record, index[counts == count])
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
