"""Quantiles of a histogram, as TensorBoard's page of distributions shows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runhooks.tensorboard.event_types import HistogramValue

#: Basis points, of 10000: the middle, and one, one and a half and more deviations around it.
NORMAL_BASIS_POINTS = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)


def quantiles(
    histogram: HistogramValue, basis_points: Sequence[float] = NORMAL_BASIS_POINTS
) -> list[tuple[float, float]]:
    """Return each of ``basis_points``, ascending, and the number below which so many are."""
    counts = np.asarray(histogram.bucket, np.float64)
    if not histogram.num:
        return [(point, 0.0) for point in basis_points]
    reached = (counts * basis_points[-1] / (counts.sum() or 1.0)).cumsum()
    bins = np.searchsorted(reached, basis_points, "right").tolist()
    return [
        (point, _number_at(histogram, point, at, reached) if at < len(reached) else histogram.max)
        for point, at in zip(basis_points, bins, strict=True)
    ]


def _number_at(
    histogram: HistogramValue, point: float, at: int, reached: NDArray[np.float64]
) -> float:
    """Return the number in bucket ``at`` below which ``point`` are, if they lie evenly in it."""
    limits = histogram.bucket_limit
    before = float(reached[at - 1]) if at else 0.0
    left = max(limits[at - 1], histogram.min) if before else histogram.min
    right = min(limits[at], histogram.max)
    return left + (point - before) * (right - left) / (float(reached[at]) - before)
