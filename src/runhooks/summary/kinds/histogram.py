"""Histograms: counts of numbers as TensorBoard shows them."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays import to_numpy
from runhooks.arrays.histogram import HistogramCounts, histogram_counts
from runhooks.events.format import wire
from runhooks.summary.kinds.real_numbers import keep, read, warn_of_non_finite
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.message import Summary, Value, entry

#: How many buckets are written at most: pairs of neighbours are put together until it holds. To
#: hold for any data it must be at least 510, one for each sign and exponent.
WRITTEN_BUCKETS = 512

_HISTO = 5
_SIGN = 0x8000
_INFINITY = 0x7F80  # upper half of +Inf; from there to the sign bit there is only NaN
_MANTISSA_BITS = 7  # in the upper half of a float32


def histogram_value(tag: str, values: Any) -> Value:
    """Return ``values``, to be written as a histogram.

    Args:
        tag: Their tag. If there are NaN or infinities, which are left out, the scalars
            ``tag/nan_count`` and ``tag/inf_count`` say how many, and so does a warning, once for
            each tag.
        values: Real numbers of any shape and dtype, or ``HistogramCounts``.

    Raises:
        TypeError: ``values`` are not real numbers.
    """
    is_counted = isinstance(values, HistogramCounts)
    return Value(tag, values if is_counted else keep(_name(tag), values), _encode)


def _name(tag: str) -> str:
    return f"histogram summary {tag!r}"


def _encode(tag: str, values: Any) -> bytes:
    if not isinstance(values, HistogramCounts):
        values = histogram_counts(read(_name(tag), values))
    bits = to_numpy(values.counts).astype(np.int64)
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
