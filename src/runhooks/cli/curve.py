"""Curves: drawn as one line of blocks, and thinned out for a plot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runhooks.events import Scalars

_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "✕"


def sparkline(scalars: Scalars, width: int) -> str:
    """Return ``width`` characters, from the first step to the last; each is the mean of its steps.

    A space stands where there is no point, a cross where no point is a finite number.
    """
    steps, values = scalars.steps.astype(np.float64), scalars.values
    places = _scaled(steps) * (width - 1)
    columns = np.round(places).astype(np.int64)
    finite = np.isfinite(values)
    heights = np.zeros(len(values))
    heights[finite] = _scaled(values[finite])
    counts = np.bincount(columns[finite], minlength=width)
    sums = np.bincount(columns[finite], heights[finite], minlength=width)
    used = np.bincount(columns, minlength=width)
    means = np.divide(sums, counts, out=np.zeros(width), where=counts > 0)
    blocks = np.array(list(_BLOCKS))[np.round(means * (len(_BLOCKS) - 1)).astype(np.int64)]
    return "".join(np.where(counts > 0, blocks, np.where(used > 0, _NOT_FINITE, " "))).rstrip()


def thinned(scalars: Scalars, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return steps and finite values in the order of steps, at most four points to a column.

    Nothing that could be seen is lost: of each column the lowest, the highest, the first and the
    last value are kept.
    """
    order = np.argsort(scalars.steps, kind="stable")
    order = order[np.isfinite(scalars.values[order])]
    steps, values = scalars.steps[order].astype(np.float64), scalars.values[order]
    if len(steps) <= 4 * columns:
        return steps, values
    column = np.minimum(_scaled(steps) * columns, columns - 1).astype(np.int64)
    by_value = np.lexsort((values, column))
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    ends = np.append(starts[1:], len(column)) - 1
    kept = np.unique(np.concatenate([starts, ends, by_value[starts], by_value[ends]]))
    return steps[kept], values[kept]


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``values``, all finite, from 0 to 1; all alike are in the middle."""
    if not len(values):
        return values
    low, high = values.min() / 2, values.max() / 2  # half: the difference may be too large
    return (values / 2 - low) / (high - low) if high > low else np.full(len(values), 0.5)
