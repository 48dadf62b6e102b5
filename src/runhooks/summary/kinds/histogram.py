"""Histograms: how the numbers of an array are spread.

A number is counted by the upper half of its float32 bits: its sign, its exponent and seven bits
of its mantissa. So a bucket is the span from one bfloat16 number to the next away from zero, the
edges are the same for all data, and no number is compared or sorted. Any array library can count
so, on its device, and the counts come to the host in place of the array.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events import wire
from runhooks.summary.kinds.non_finite import warn_of_non_finite
from runhooks.summary.kinds.real_array import as_now, read_array, read_real_array
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.message import Summary, Value, entry

#: How many buckets there are to count in: one for each upper half of a float32.
BUCKETS = 1 << 16

#: How many buckets are written at most: pairs of neighbours are put together until it holds. To
#: hold for any data it must be at least 510, one for each sign and exponent.
WRITTEN_BUCKETS = 512

_HISTO = 5
_SIGN = 0x8000
_INFINITY = 0x7F80  # upper half of +Inf; from there to the sign bit there is only NaN
_BLOCK = 1 << 18
_UPPER = 1 if sys.byteorder == "little" else 0
_ADDED = 16
_MULTIPLIED = 1 << 13
_MANTISSA_BITS = 7  # in the upper half of a float32
_FLOAT32_MAX = float(np.finfo(np.float32).max)


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
    written, which raises TypeError if they are no real numbers. NaN and infinities are left out;
    if there are any, the scalars ``tag/nan_count`` and ``tag/inf_count`` say how many, and so does
    a warning, once for each tag.
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
    values = _countable(values)
    # What NumPy makes of a block stays in the cache, and takes no fresh memory.
    blocks = (values[at : at + _BLOCK] for at in range(0, max(values.size, 1), _BLOCK))
    counts, least, largest, sums, sums_squares = zip(*map(_counted_here, blocks), strict=True)
    return HistogramCounts(sum(counts), min(least), max(largest), sum(sums), sum(sums_squares))


def _countable(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``values`` as they are if they have a dtype that is counted, else as float64 or 32."""
    if values.dtype == np.longdouble:
        with np.errstate(over="ignore"):
            return values.astype(np.float64)
    is_small_float = values.dtype.kind not in "biu" and values.dtype.itemsize < 4
    return values.astype(np.float32) if is_small_float else values


def _counted_here(block: NDArray[Any]) -> HistogramCounts:
    """Count as ``_counted`` does with NumPy, several times faster where it can be."""
    if block.dtype == np.float32 and block.size:
        with np.errstate(invalid="ignore"):
            least, largest = float(block.min()), float(block.max())
        farthest = max(-least, largest)
        # Beyond these, squares would leave the range of float32.
        if farthest == 0 or 1e-10 < farthest < 1e15:
            halves = block.view(np.uint16)[_UPPER::2]
            return HistogramCounts(
                _bincount(halves), least, largest, _sum(block), _sum_squares(block)
            )
    return _counted(block, np, _bincount)


def _sum(block: NDArray[np.float32]) -> float:
    # What rounding loses grows with how many are added up in single precision: a few at a time.
    whole = block.size // _ADDED * _ADDED
    partial = np.add.reduce(block[:whole].reshape(_ADDED, -1), axis=0)
    return float(partial.sum(dtype=np.float64) + block[whole:].sum(dtype=np.float64))


def _sum_squares(block: NDArray[np.float32]) -> float:
    # So few at a time that no library would start threads for it.
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
            finite = True  # NumPy is several times slower with a mask
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
    bits = read_array(values.counts).astype(np.int64)
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
    return entry(tag, wire.bytes_field(_HISTO, b"".join(histogram))) + _non_finite(tag, bits)


def _non_finite(tag: str, bits: NDArray[np.int64]) -> bytes:
    """Return entries for how many there were that have no bucket, and log it; nothing if none."""
    positive, negative = bits[_INFINITY:_SIGN], bits[_SIGN + _INFINITY :]
    infinities = int(positive[0] + negative[0])
    nans = int(positive[1:].sum() + negative[1:].sum())
    warn_of_non_finite("histogram", tag, nans, infinities, "left out")
    if not (nans or infinities):
        return b""
    counts = scalar_value(f"{tag}/nan_count", nans), scalar_value(f"{tag}/inf_count", infinities)
    return Summary(counts).SerializeToString()


def _written_buckets(bits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts to write, from the least numbers to the greatest, and their limits."""
    negative, positive = bits[_SIGN : _SIGN + _INFINITY], bits[:_INFINITY]
    all_counts = np.concatenate((negative[::-1], positive))
    filled = np.flatnonzero(all_counts != 0)
    fewest = ((filled.size - 1) // WRITTEN_BUCKETS).bit_length() if filled.size else 0
    for shift in range(fewest, _MANTISSA_BITS + 1):
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
