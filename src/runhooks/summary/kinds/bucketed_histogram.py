"""Histograms in buckets of one width, as a tensor, as TensorFlow 2 writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.summary.kinds.real_numbers import finite_in, keep, read
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

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
    return Value(tag, (keep(_name(tag), values), buckets or _BUCKETS), _encode)


def _name(tag: str) -> str:
    return f"histogram summary {tag!r}"


def _encode(tag: str, data: tuple[Any, int]) -> bytes:
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
