"""Histograms: numbers are counted by the upper half of their float32 bits.

So a bucket is the span from one bfloat16 number to the next away from zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How many buckets there are: one for each upper half of a float32.
BUCKETS = 1 << 16

_BLOCK = 1 << 18
_UPPER = 1 if sys.byteorder == "little" else 0
_ADDED = 16
_MULTIPLIED = 1 << 13
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class HistogramCounts(NamedTuple):
    """The histogram of an array.

    Attributes:
        counts: How many numbers have each upper half, ``[BUCKETS]``, integers.
        min: The least finite number; +inf if there is none.
        max: The largest; -inf if there is none.
        sum: That of the finite numbers.
        sum_squares: That of their squares.
    """

    counts: Any
    min: Any
    max: Any
    sum: Any
    sum_squares: Any


_bincount = partial(np.bincount, minlength=BUCKETS)


def histogram_counts(
    values: Any, xp: Any = np, bincount: Callable[[Any], Any] = _bincount
) -> HistogramCounts:
    """Count ``values``, real numbers, as exactly as integers and floats of ``xp`` can.

    Args:
        values: Of any shape and dtype.
        xp: ``numpy``, or a module like it whose functions may be traced, such as ``jax.numpy``.
        bincount: Counts unsigned integers: ``partial(jax.numpy.bincount, length=BUCKETS)``.
    """
    values = xp.asarray(values).ravel()
    if xp is not np:
        return _counted(values, xp, bincount)
    values = _countable(values)
    # Blocks stay in the cache.
    blocks = (values[at : at + _BLOCK] for at in range(0, max(values.size, 1), _BLOCK))
    counts, least, largest, sums, sums_squares = zip(*map(_counted_here, blocks), strict=True)
    return HistogramCounts(sum(counts), min(least), max(largest), sum(sums), sum(sums_squares))


def _countable(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype == np.longdouble:
        with np.errstate(over="ignore"):
            return values.astype(np.float64)
    is_small_float = values.dtype.kind not in "biu" and values.dtype.itemsize < 4
    return values.astype(np.float32) if is_small_float else values


def _counted_here(block: NDArray[Any]) -> HistogramCounts:
    """As ``_counted``; faster for most float32."""
    if block.dtype == np.float32 and block.size:
        with np.errstate(invalid="ignore"):
            least, largest = float(block.min()), float(block.max())
        farthest = max(-least, largest)
        # Beyond these, squares leave the range of float32.
        if farthest == 0 or 1e-10 < farthest < 1e15:
            halves = block.view(np.uint16)[_UPPER::2]
            return HistogramCounts(
                _bincount(halves), least, largest, _sum(block), _sum_squares(block)
            )
    return _counted(block, np, _bincount)


def _sum(block: NDArray[np.float32]) -> float:
    # A few at a time: long sums lose more in single precision.
    whole = block.size // _ADDED * _ADDED
    partial = np.add.reduce(block[:whole].reshape(_ADDED, -1), axis=0)
    return float(partial.sum(dtype=np.float64) + block[whole:].sum(dtype=np.float64))


def _sum_squares(block: NDArray[np.float32]) -> float:
    # So few that no library starts threads.
    parts = (block[at : at + _MULTIPLIED] for at in range(0, block.size, _MULTIPLIED))
    return sum(float(np.dot(part, part)) for part in parts)


def _counted(values: Any, xp: Any, bincount: Callable[[Any], Any]) -> HistogramCounts:
    finite = xp.isfinite(values)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32, copy=False)
        if values.dtype == np.float64:
            narrow = xp.where(finite, xp.clip(narrow, -_FLOAT32_MAX, _FLOAT32_MAX), narrow)
        wide = values.astype(xp.asarray(0.0).dtype)
        if xp is np and finite.all():
            finite = True  # NumPy is slower with a mask
        return HistogramCounts(
            bincount(narrow.view(np.uint32) >> 16),
            wide.min(where=finite, initial=np.inf),
            wide.max(where=finite, initial=-np.inf),
            wide.sum(where=finite),
            (wide * wide).sum(where=finite),
        )
