"""Histograms: how the numbers of an array are spread.

A number is counted by the upper half of its float32 bits: its sign, its exponent and seven bits
of its mantissa. So a bucket is the span from one bfloat16 number to the next away from zero, the
edges are the same for all data, and no number is compared or sorted. Any array library can count
so, on its device, and the counts come to the host in place of the array.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events import wire
from runhooks.summary.message import Value, entry
from runhooks.summary.real_array import as_now, read_real_array

#: How many buckets there are to count in: one for each upper half of a float32.
BUCKETS = 1 << 16

#: How many buckets are written at most: pairs of neighbours are put together until it holds. To
#: hold for any data it must be at least 510, one for each sign and exponent.
WRITTEN_BUCKETS = 512

_HISTO = 5
_SIGN = 0x8000
_INFINITY = 0x7F80  # upper half of +Inf; from there to the sign bit there is only NaN
_BLOCK = 1 << 18
_MANTISSA_BITS = 7  # in the upper half of a float32
_FLOAT32_MAX = float(np.finfo(np.float32).max)

_logger = logging.getLogger("runhooks")
_warned: set[str] = set()


class HistogramCounts(NamedTuple):
    """An array, counted.

    ``counts``: integers, ``[BUCKETS]``, how many numbers have that upper half. The other fields
    are numbers about the finite ones alone; ``min`` is +inf and ``max`` -inf if there are none.
    """

    counts: Any
    min: Any
    max: Any
    sum: Any
    sum_squares: Any


def histogram_value(tag: str, values: Any) -> Value:
    """Return ``values``, real numbers of any shape and dtype, to be written as a histogram.

    They may have been counted already: ``HistogramCounts``. They are read when the summary is
    written, which raises TypeError if they are no real numbers. NaN and infinities are left out,
    and a warning, once for each tag, says how many there were.
    """
    return Value(tag, as_now(values), _encode)


def _bincount(numbers: Any) -> Any:
    return np.bincount(numbers, minlength=BUCKETS)


def histogram_counts(
    values: Any, xp: Any = np, bincount: Callable[[Any], Any] = _bincount
) -> HistogramCounts:
    """Count ``values``, real numbers of any shape and dtype, with the array library ``xp``.

    ``xp`` is ``numpy``, or has functions of the same names that may be traced, as ``jax.numpy``
    does. ``bincount`` counts unsigned integers: ``partial(jax.numpy.bincount, length=BUCKETS)``.
    Counts are exact as far as the integers of ``xp`` go, sums as far as its default float.
    """
    values = xp.asarray(values).ravel()
    if xp is not np:
        return _counted(values, xp, bincount)
    if values.dtype == np.longdouble:
        with np.errstate(over="ignore"):
            values = values.astype(np.float64)
    # What NumPy makes of a block stays in the cache, and takes no fresh memory.
    blocks = (values[at : at + _BLOCK] for at in range(0, max(values.size, 1), _BLOCK))
    counted = (_counted(block, np, bincount) for block in blocks)
    counts, least, largest, sums, sums_squares = zip(*counted, strict=True)
    return HistogramCounts(sum(counts), min(least), max(largest), sum(sums), sum(sums_squares))


def _counted(values: Any, xp: Any, bincount: Callable[[Any], Any]) -> HistogramCounts:
    finite = xp.isfinite(values)
    if xp is np and finite.all():
        finite = True  # NumPy is several times slower with a mask
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32, copy=False)
        if values.dtype == np.float64:
            narrow = xp.where(finite, xp.clip(narrow, -_FLOAT32_MAX, _FLOAT32_MAX), narrow)
        wide = values.astype(xp.asarray(0.0).dtype)
        return HistogramCounts(
            bincount(narrow.view(np.uint32) >> 16),
            wide.min(where=finite, initial=np.inf),
            wide.max(where=finite, initial=-np.inf),
            wide.sum(where=finite),
            (wide * wide).sum(where=finite),
        )


def _encode(tag: str, values: Any) -> bytes:
    if not isinstance(values, HistogramCounts):
        values = histogram_counts(read_real_array(tag, values))
    bits = np.asarray(values.counts).astype(np.int64)
    _warn_of_non_finite(tag, bits)
    counts, limits = _written_buckets(bits)
    smallest, largest = (values.min, values.max) if counts.size else (0.0, 0.0)
    histogram = [
        wire.double_field(1, float(smallest)),
        wire.double_field(2, float(largest)),
        wire.double_field(3, float(counts.sum())),
        wire.double_field(4, float(values.sum)),
        wire.double_field(5, float(values.sum_squares)),
        wire.packed_doubles_field(6, limits),
        wire.packed_doubles_field(7, counts),
    ]
    return entry(tag, wire.bytes_field(_HISTO, b"".join(histogram)))


def _warn_of_non_finite(tag: str, bits: NDArray[np.int64]) -> None:
    positive, negative = bits[_INFINITY:_SIGN], bits[_SIGN + _INFINITY :]
    infinities = int(positive[0] + negative[0])
    nans = int(positive[1:].sum() + negative[1:].sum())
    if (infinities or nans) and tag not in _warned:
        _warned.add(tag)
        _logger.warning(
            "histogram %r leaves out %d NaN and %d infinite values (said once for a tag)",
            tag,
            nans,
            infinities,
        )


def _written_buckets(bits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts to write, from the least numbers to the greatest, and their limits."""
    negative, positive = bits[_SIGN : _SIGN + _INFINITY], bits[:_INFINITY]
    all_counts = np.concatenate((negative[::-1], positive))
    filled = np.flatnonzero(all_counts)
    for shift in range(_MANTISSA_BITS + 1):
        coarse = filled >> shift
        first = np.flatnonzero(np.diff(coarse, prepend=-1))
        buckets = coarse[first]
        # Between two filled buckets, all empty ones are written as a single one.
        gaps = buckets[1:][np.diff(buckets) > 1] - 1
        if buckets.size + gaps.size <= WRITTEN_BUCKETS:
            break
    written = np.sort(np.concatenate((buckets, gaps)))
    counts = np.zeros(written.size, np.int64)
    if filled.size:
        counts[np.searchsorted(written, buckets)] = np.add.reduceat(all_counts[filled], first)
    return counts, _limits()[((written + 1) << shift) - 1]


@functools.cache
def _limits() -> NDArray[np.float64]:
    """Return the right edge of every bucket, from the least numbers to the greatest."""
    halves = np.arange(_INFINITY + 1, dtype=np.uint32)
    magnitudes = (halves << 16).view(np.float32).astype(np.float64)
    magnitudes[-1] = sys.float_info.max  # in place of infinity: float64 goes beyond float32
    return np.concatenate((-magnitudes[-2::-1], magnitudes[1:])) + 0.0
