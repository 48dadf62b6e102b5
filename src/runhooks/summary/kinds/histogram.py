"""Histograms: counts of numbers, in buckets or in bins of the caller."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runhooks import arguments
from runhooks.arrays import to_numpy
from runhooks.arrays.histogram import HistogramCounts, histogram_counts
from runhooks.events.format import proto
from runhooks.summary.kinds.values import Kept, encode_scalar, keep, warn_of_non_finite
from runhooks.summary.message import Value, entry

#: At most; any data fit in 510, one for each sign and exponent.
WRITTEN_BUCKETS = 512

_HISTO = 5
_SIGN = 0x8000
_INFINITY = 0x7F80  # upper half of +Inf; beyond it there is only NaN
_MANTISSA_BITS = 7  # in the upper half of a float32

Bins: TypeAlias = int | str | Sequence[float] | NDArray[Any]


def histogram_value(
    tag: str, values: Any, bins: Bins | None = None, max_bins: int | None = None
) -> Value:
    """Return a histogram of ``values``.

    Args:
        tag: Their tag. NaN and infinities are left out; the scalars ``tag/nan_count`` and
            ``tag/inf_count``, and one warning per tag, say how many.
        values: Real numbers of any shape and dtype, or ``HistogramCounts``.
        bins: What ``numpy.histogram`` takes. None: up to 512 buckets, whose width grows with the
            numbers in them.
        max_bins: Neighbours are put together beyond so many.

    Raises:
        TypeError: ``values`` are not real numbers.
        ValueError: ``bins`` is none of the above, or ``max_bins`` is below 1.
    """
    if max_bins is not None:
        arguments.whole(max_bins=max_bins)
    kept = values if isinstance(values, HistogramCounts) else keep(_name(tag), values)
    return Value(tag, (kept, _checked(tag, bins), max_bins), _encode)


def counted_histogram_value(
    tag: str,
    smallest: float,
    largest: float,
    num: float,
    total: float,
    sum_squares: float,
    limits: ArrayLike,
    counts: ArrayLike,
) -> Value:
    """Return a histogram that the caller has counted.

    ``limits``, the right edges of the buckets, and ``counts`` are ``[n]``, or raise ValueError.
    """
    right, held = np.array(limits, np.float64).ravel(), np.array(counts, np.float64).ravel()
    if len(right) != len(held):
        raise ValueError(
            f"the histogram {tag!r} must have one count for each limit, "
            f"got {len(right)} limits and {len(held)} counts"
        )
    moments = tuple(map(float, (smallest, largest, num, total, sum_squares)))
    return Value(tag, (moments, right, held), _encode_counted)


def _name(tag: str) -> str:
    return f"histogram summary {tag!r}"


def _checked(tag: str, bins: Bins | None) -> Bins | None:
    if bins is None:
        return None
    given = bins if isinstance(bins, str | int) else np.array(bins)
    try:
        np.histogram_bin_edges(np.zeros(1), given)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"bins of {_name(tag)} must be a number, a rule such as 'auto', or ascending edges, "
            f"got {bins!r}: {error}"
        ) from None
    return given


def _encode(tag: str, data: tuple[Kept | HistogramCounts, Bins | None, int | None]) -> bytes:
    kept, bins, max_bins = data
    if bins is None or isinstance(kept, HistogramCounts):
        found = kept if isinstance(kept, HistogramCounts) else histogram_counts(kept.read())
        bits = to_numpy(found.counts).astype(np.int64)
        nans, infinities = _non_finite(bits)
        counts, limits = _written_buckets(bits)
        extremes = (found.min, found.max) if counts.size else (0.0, 0.0)
        moments = (*extremes, counts.sum(), found.sum, found.sum_squares)
    else:
        numbers = kept.read().ravel().astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        nans = int(np.isnan(numbers).sum())
        infinities = len(numbers) - len(finite) - nans
        counts, limits = np.histogram(finite, bins)
        counts = np.append(0, counts)  # below the first edge
        extremes = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        moments = (*extremes, len(finite), finite.sum(), np.square(finite).sum())
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = fewer(counts, limits, max_bins)
    said = b""
    if nans or infinities:
        warn_of_non_finite("histogram", tag, nans, infinities, "left out")
        said = encode_scalar(f"{tag}/nan_count", nans)
        said += encode_scalar(f"{tag}/inf_count", infinities)
    return _encode_counted(tag, (moments, limits, counts)) + said


def _encode_counted(tag: str, data: tuple[tuple[float, ...], NDArray[Any], NDArray[Any]]) -> bytes:
    moments, limits, counts = data
    fields = [proto.double_field(number, float(it)) for number, it in enumerate(moments, 1)]
    fields += [proto.packed_doubles_field(6, limits), proto.packed_doubles_field(7, counts)]
    return entry(tag, proto.bytes_field(_HISTO, b"".join(fields)))


def fewer(
    counts: NDArray[Any], limits: NDArray[Any], most: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return at most ``most`` counts, neighbours added up, and their right edges."""
    together = -(-len(counts) // most)
    first = np.arange(0, len(counts), together)
    last = np.minimum(first + together, len(counts)) - 1
    return np.add.reduceat(counts, first), limits[last]


def _non_finite(bits: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many numbers are NaN, and how many infinite."""
    positive, negative = bits[_INFINITY:_SIGN], bits[_SIGN + _INFINITY :]
    nans = int(positive[1:].sum() + negative[1:].sum())
    return nans, int(positive[0] + negative[0])


def _written_buckets(bits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts to write, in ascending order, and their limits."""
    negative, positive = bits[_SIGN : _SIGN + _INFINITY], bits[:_INFINITY]
    all_counts = np.concatenate((negative[::-1], positive))
    filled = np.flatnonzero(all_counts != 0)
    fewest = ((filled.size - 1) // WRITTEN_BUCKETS).bit_length() if filled.size else 0
    for shift in range(fewest, _MANTISSA_BITS + 1):
        coarse = filled >> shift
        first = np.flatnonzero(np.diff(coarse, prepend=-1))
        buckets = coarse[first]
        # Empty buckets between two filled ones are written as one.
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
    """Return the right edges of all buckets, in ascending order."""
    halves = np.arange(_INFINITY + 1, dtype=np.uint32)
    magnitudes = (halves << 16).view(np.float32).astype(np.float64)
    magnitudes[-1] = sys.float_info.max  # in place of infinity
    return np.concatenate((-magnitudes[-2::-1], magnitudes[1:])) + 0.0
