"""Histograms: counts of numbers as TensorBoard shows them, in buckets or in bins of the caller.

The bins of torch and tensorboardX are the default: their edges grow by a tenth, from 1e-12 to 1e20
on both sides of zero.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runhooks import arguments
from runhooks.arrays import to_numpy
from runhooks.arrays.histogram import HistogramCounts, histogram_counts
from runhooks.events.format import proto
from runhooks.summary.kinds.real_numbers import finite_in, keep, read, warn_of_non_finite
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import Summary, SummaryMetadata, Value, entry, tensor_entry

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
        proto.double_field(1, float(smallest)),
        proto.double_field(2, float(largest)),
        proto.double_field(3, float(counts.sum())),
        proto.double_field(4, float(values.sum)),
        proto.double_field(5, float(values.sum_squares)),
        proto.packed_doubles_field(6, limits),
        proto.packed_doubles_field(7, counts),
    ]
    return entry(tag, proto.bytes_field(_HISTO, b"".join(histogram))) + _non_finite(tag, bits)


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


_BUCKETS = 30
_METADATA = SummaryMetadata("histograms")


def bucketed_histogram_value(tag: str, values: Any, buckets: int | None = None) -> Value:
    """Return ``values``, to be written as a histogram.

    Args:
        tag: Their tag.
        values: Real numbers of any shape and dtype. Those that are not finite are left out, with a
            warning once for each tag.
        buckets: How many buckets from the least to the largest; None: 30.

    Raises:
        TypeError: ``values`` are not real numbers.
        ValueError: ``buckets`` is below 1.
    """
    arguments.whole(buckets=buckets)
    return Value(tag, (keep(_name(tag), values), buckets or _BUCKETS), _encode_buckets)


def _encode_buckets(tag: str, data: tuple[Any, int]) -> bytes:
    kept, buckets = data
    numbers = read(_name(tag), kept).ravel().astype(np.float64)
    finite = finite_in("histogram", tag, numbers, "left out")
    rows = _rows(numbers if finite.all() else numbers[finite], buckets)
    return tensor_entry(tag, encode_tensor(tag, rows), _METADATA)


def _rows(numbers: NDArray[np.float64], buckets: int) -> NDArray[np.float64]:
    """Return the left edge, the right edge and the count of each bucket."""
    rows = np.zeros((buckets, 3))
    if not len(numbers):
        return rows
    least, largest = numbers.min(), numbers.max()
    if least == largest:
        rows[:, :2] = largest
        rows[-1, 2] = len(numbers)
        return rows
    places = np.floor((numbers - least) / ((largest - least) / buckets)).astype(np.int64)
    edges = np.linspace(least, largest, buckets + 1)
    rows[:, 0], rows[:, 1] = edges[:-1], edges[1:]
    rows[:, 2] = np.bincount(np.minimum(places, buckets - 1), minlength=buckets)
    return rows


_RULES = ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")
_LEAST_EDGE, _LAST_EDGE, _GROWTH = 1e-12, 1e20, 1.1
_HALVES = 1 << 16
_UPPER = 1 if sys.byteorder == "little" else 0
_BLOCK = 1 << 17
_ADDED = 1 << 16
_MULTIPLIED = 1 << 13

Counts = tuple[NDArray[Any], NDArray[np.float64]]


@functools.cache
def default_edges() -> NDArray[np.float64]:
    """Return the edges of the default bins, float64 ``[1549]``."""
    edges = []
    edge = _LEAST_EDGE
    while edge < _LAST_EDGE:
        edges.append(edge)
        edge *= _GROWTH
    positive = np.array(edges)
    return np.concatenate((-positive[::-1], [0.0], positive))


def binned_histogram_value(
    tag: str,
    values: Any,
    bins: int | str | Sequence[float] | NDArray[Any] | None = None,
    max_bins: int | None = None,
) -> Value:
    """Return ``values``, to be written as a histogram with these bins.

    Args:
        tag: Their tag. If there are NaN or infinities, which are left out, the scalars
            ``tag/nan_count`` and ``tag/inf_count`` say how many, and so does a warning, once for
            each tag.
        values: Real numbers of any shape and dtype.
        bins: How many bins of one width, a rule of ``numpy.histogram`` such as ``"auto"``, or the
            edges of the bins, ascending. None: ``default_edges``, with one more bin on each side
            if there are numbers beyond.
        max_bins: How many bins there may be: neighbours are put together beyond that.

    Raises:
        TypeError: ``values`` are not real numbers.
        ValueError: There are none, ``bins`` is none of the above, or ``max_bins`` is below 1.
    """
    if max_bins is not None:
        arguments.whole(max_bins=max_bins)
    kept = keep(_name(tag), values, _check_not_empty)
    return Value(tag, (kept, _checked_bins(tag, bins), max_bins), _encode_bins)


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
    """Return a histogram that the caller has counted, to be written as it is.

    Args:
        tag: The tag.
        smallest: The least number.
        largest: The largest.
        num: How many there are.
        total: Their sum.
        sum_squares: The sum of their squares.
        limits: The right edge of each bucket, ``[n]``.
        counts: How many numbers each bucket holds, ``[n]``.

    Raises:
        ValueError: ``limits`` and ``counts`` differ in length.
    """
    right, held = np.array(limits, np.float64).ravel(), np.array(counts, np.float64).ravel()
    if len(right) != len(held):
        raise ValueError(
            f"the histogram {tag!r} must have one count for each limit, "
            f"got {len(right)} limits and {len(held)} counts"
        )
    moments = tuple(map(float, (smallest, largest, num, total, sum_squares)))
    return Value(tag, _histogram(tag, moments, right, held), _encoded)


def _encoded(tag: str, message: bytes) -> bytes:
    return message


def _check_not_empty(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if 0 in shape:
        raise ValueError(f"{what} must have at least one number, got the shape {list(shape)}")


def _checked_bins(tag: str, bins: Any) -> int | str | NDArray[Any] | None:
    if bins is None:
        return None
    if isinstance(bins, str):
        if bins not in _RULES:
            raise ValueError(
                f"bins of {_name(tag)} must be a number, edges, or one of {', '.join(_RULES)}, "
                f"got {bins!r}"
            )
        return bins
    if np.ndim(bins) == 0:
        arguments.whole(bins=bins)
        return int(bins)
    edges = np.array(bins)
    if edges.ndim != 1 or len(edges) < 2 or not (edges[:-1] <= edges[1:]).all():
        raise ValueError(f"bins of {_name(tag)} must be ascending edges, two or more, got {bins!r}")
    return edges


def _encode_bins(tag: str, data: tuple[Any, int | str | NDArray[Any] | None, int | None]) -> bytes:
    kept, bins, max_bins = data
    array = read(_name(tag), kept, _check_not_empty).ravel()
    smallest, largest = float(array.min()), float(array.max())
    said = b""
    if not (np.isfinite(smallest) and np.isfinite(largest)):
        said = _count_non_finite(tag, array)
        array = array[np.isfinite(array)]
        if not len(array):
            nothing = np.zeros(1)
            return _histogram(tag, (0.0,) * 5, nothing, nothing) + said
        smallest, largest = float(array.min()), float(array.max())
    counts, edges = _default_counts(array) if bins is None else _counts(array, bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, edges = _fewer(counts, edges, max_bins)
    limits, shown = _without_ends(counts, edges)
    moments = (
        smallest,
        largest,
        float(len(array)),
        _sum(array),
        _sum_squares(array),
    )
    return _histogram(tag, moments, limits, shown) + said


def _sum(array: NDArray[Any]) -> float:
    """Return the sum in double precision that NumPy returns, to the last bit, in less memory."""
    if len(array) <= _ADDED:
        return float(array.astype(np.float64).sum())
    half = len(array) // 2
    half -= half % 8  # so does NumPy halve what it adds up
    return _sum(array[:half]) + _sum(array[half:])


def _sum_squares(array: NDArray[Any]) -> float:
    # So few at a time that no library would start threads for it.
    parts = (
        array[at : at + _MULTIPLIED].astype(np.float64) for at in range(0, len(array), _MULTIPLIED)
    )
    return float(sum(part.dot(part) for part in parts))


def _histogram(
    tag: str, moments: tuple[float, ...], limits: NDArray[Any], counts: NDArray[Any]
) -> bytes:
    fields = [proto.double_field(number, moment) for number, moment in enumerate(moments, 1)]
    fields += [proto.packed_doubles_field(6, limits), proto.packed_doubles_field(7, counts)]
    return entry(tag, proto.bytes_field(_HISTO, b"".join(fields)))


def _count_non_finite(tag: str, numbers: NDArray[Any]) -> bytes:
    """Return entries that say how many NaN and infinities there are, and log it."""
    nans = int(np.count_nonzero(np.isnan(numbers)))
    infinities = int(np.count_nonzero(np.isinf(numbers)))
    warn_of_non_finite("histogram", tag, nans, infinities, "left out")
    counts = scalar_value(f"{tag}/nan_count", nans), scalar_value(f"{tag}/inf_count", infinities)
    return Summary(counts).SerializeToString()


def _counts(array: NDArray[Any], bins: int | str | NDArray[Any]) -> Counts:
    counts, edges = np.histogram(array.astype(np.float64), bins)
    return counts, edges.astype(np.float64)


class _Halves(NamedTuple):
    """For each upper half of a float32: the bin of its least number, and the edge that splits it.

    ``edges`` are NaN where no edge is among the numbers, or so near that a float64 which is rounded
    to one of them may be beyond it. ``float32_edges`` are the first float32 from the edges on.
    """

    bins: NDArray[np.intp]
    edges: NDArray[np.float64]
    float32_edges: NDArray[np.float32]


def _default_counts(array: NDArray[Any]) -> Counts:
    """Count as ``np.histogram`` does with ``default_edges``, several times faster.

    The upper half of a float32 says in which of two bins a number is, and a comparison with the
    edge between them in which of the two.
    """
    table = _halves()
    counts = np.zeros(2 * _HALVES, np.int64)
    is_float32 = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    for begin in range(0, len(array), _BLOCK):
        exact = array[begin : begin + _BLOCK]
        edges: NDArray[Any] = table.float32_edges
        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(exact, np.float32)
        if not is_float32:
            exact, edges = exact.astype(np.float64, copy=False), table.edges
        codes = narrow.view(np.uint16)[_UPPER::2].astype(np.int32)
        is_beyond = exact >= edges.take(codes)
        np.left_shift(codes, 1, out=codes)
        codes += is_beyond
        counts += np.bincount(codes, minlength=2 * _HALVES)
    below, beyond = counts.reshape(_HALVES, 2).T
    size = len(default_edges()) + 1
    in_bins = (
        np.bincount(table.bins, below, size) + np.bincount(table.bins + 1, beyond, size + 1)[:-1]
    )
    return _within(in_bins.astype(np.int64))


def _within(counts: NDArray[np.int64]) -> Counts:
    """Drop the bins below the first edge and above the last one if they are empty."""
    edges = np.concatenate(([-sys.float_info.max], default_edges(), [sys.float_info.max]))
    first, last = int(counts[0] == 0), len(counts) - int(counts[-1] == 0)
    return counts[first:last], edges[first : last + 1]


@functools.cache
def _halves() -> _Halves:
    edges = default_edges().copy()
    edges[-1] = np.nextafter(edges[-1], np.inf)  # the last bin has both its edges
    upper = np.arange(_HALVES, dtype=np.uint32) << 16
    ends = np.sort(np.nan_to_num(np.stack((upper, upper | 0xFFFF)).view(np.float32)), axis=0)
    with np.errstate(over="ignore"):
        low = np.nextafter(ends[0], np.float32(-np.inf)).astype(np.float64)
        high = np.nextafter(ends[1], np.float32(np.inf)).astype(np.float64)
    bins = np.searchsorted(edges, low, "right")
    is_split = np.searchsorted(edges, high, "right") > bins
    splits = np.append(edges, np.nan)[np.where(is_split, bins, len(edges))]
    narrow = splits.astype(np.float32)
    narrow = np.where(narrow < splits, np.nextafter(narrow, np.float32(np.inf)), narrow)
    return _Halves(bins, splits, narrow)


def _fewer(counts: NDArray[Any], edges: NDArray[np.float64], most: int) -> Counts:
    """Put neighbours together, the same number of them everywhere."""
    together = len(counts) // most
    first = np.arange(0, len(counts), together)
    return np.add.reduceat(counts, first), np.append(edges[first], edges[-1])


def _without_ends(
    counts: NDArray[Any], edges: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return limits and counts without the empty bins at both ends, but for one before them."""
    filled = np.flatnonzero(counts)
    if not len(filled):  # all numbers are beyond the edges that the caller gave
        return edges[[0, -1]], np.zeros(2)
    first, last = int(filled[0]), int(filled[-1])
    return edges[first : last + 2], np.concatenate(([0], counts[first : last + 1]))
