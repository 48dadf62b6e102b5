"""Functions of histograms as data frames have them: distributions, densities and other bins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


def histogram_of_tensor(tensor: ArrayLike) -> dict[str, Any]:
    """Return the histogram that TensorFlow 2 writes as a tensor in the form of the others.

    Args:
        tensor: ``[n, 3]``: the left edge, the right edge and the count of each bucket.

    Returns:
        ``limits`` and ``counts``, ``[n + 1]``, of which the first is the left edge and 0; ``min``,
        ``max``, ``num``; ``sum`` and ``sum_squares``, which are not known, as NaN.
    """
    rows = np.asarray(tensor, np.float64)
    limits = np.concatenate((rows[:1, 0], rows[:, 1]))
    counts = np.concatenate(([0.0], rows[:, 2]))
    return {
        "limits": limits,
        "counts": counts,
        "min": limits[0],
        "max": limits[-1],
        "num": counts.sum(),
        "sum": np.nan,
        "sum_squares": np.nan,
    }


def distribution(counts: ArrayLike, limits: ArrayLike, x: ArrayLike) -> Numbers:
    """Return which share of the numbers is at most ``x``, float64 ``[n]``.

    Args:
        counts: How many numbers each bucket holds; the first holds none.
        limits: The right edge of each bucket; the first is the left edge of the second.
        x: ``[n]``, ascending.

    Raises:
        ValueError: ``counts`` and ``limits`` differ in length, or ``x`` does not ascend.
    """
    held, at = _checked(counts, limits), np.asarray(x, np.float64)
    if not (np.diff(at) > 0).all():
        raise ValueError(f"x must be ascending numbers, got {at}")
    reached = np.cumsum(held)
    share: Numbers = np.interp(at, np.asarray(limits, np.float64), reached, left=0.0) / reached[-1]
    return share


def density(counts: ArrayLike, limits: ArrayLike, x: ArrayLike) -> tuple[Numbers, Numbers]:
    """Return the middles between neighbours of ``x`` and the density of the numbers there.

    The arguments are those of ``distribution``.
    """
    at = np.asarray(x, np.float64)
    share = distribution(counts, limits, at)
    return (at[1:] + at[:-1]) / 2, np.diff(share) / np.diff(at)


def in_bins(
    counts: ArrayLike,
    limits: ArrayLike,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    n_bins: int = 30,
) -> tuple[list[float], list[float]]:
    """Return the middles of ``n_bins`` bins of one width, and how many numbers are in each.

    The numbers of a bucket lie evenly in the part of it that is between the bounds. Those of a
    bucket without a width are where it is, those beyond the bounds in the first and the last bin.

    Args:
        counts: As for ``distribution``.
        limits: As for ``distribution``.
        lower_bound: The left edge of the first bin.
        upper_bound: The right edge of the last bin.
        n_bins: How many bins.

    Raises:
        ValueError: ``counts`` and ``limits`` differ in length, or the first count is not 0.
    """
    held, at = _checked(counts, limits), np.asarray(limits, np.float64)
    if held[0] != 0:
        raise ValueError(f"the first of counts must be 0, got {held[0]}")
    low, high = (
        (0.0, 0.0) if lower_bound is None or upper_bound is None else (lower_bound, upper_bound)
    )
    if low == high:  # some width that can be shown
        low, high = low / 1.1 - 1, low * 1.1 + 1
    edges = low + np.arange(n_bins + 1) * ((high - low) / n_bins)
    left, right, held = np.maximum(low, at[:-1]), np.minimum(high, at[1:]), held[1:]
    wide = right > left
    parts = (edges[:, None] - left[wide]) / (right - left)[wide]
    bins = np.diff(np.clip(parts, 0, 1) @ held[wide])
    bins += np.histogram(np.clip(right[~wide], low, edges[-1]), edges, weights=held[~wide])[0]
    return ((edges[:-1] + edges[1:]) / 2).tolist(), bins.tolist()


def _checked(counts: ArrayLike, limits: ArrayLike) -> Numbers:
    numbers = np.asarray(counts, np.float64)
    if len(numbers) != np.size(limits):
        raise ValueError(
            f"counts and limits must have one length, got {len(numbers)} and {np.size(limits)}"
        )
    return numbers
