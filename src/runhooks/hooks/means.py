"""``Means``: the means of what many runs give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class Means:
    """The mean of each metric over runs, weighted if they have a weight. Each is one number a run.

    A value is read when the next one comes: the device computes that one meanwhile.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._sums = dict.fromkeys(labels, 0.0)
        self._weight = 0.0
        self._unread: tuple[Mapping[str, Any], Any] | None = None

    def add(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Add the values of one run. Raises ValueError or TypeError for what is no number."""
        self._read()
        self._unread = values, weight

    def means(self) -> dict[str, float]:
        """The means by label. Raises ValueError if the weights sum up to nothing."""
        self._read()
        if not self._weight:
            raise ValueError("weight was 0 in all runs: there is nothing to take the mean of")
        return {label: total / self._weight for label, total in self._sums.items()}

    def _read(self) -> None:
        if self._unread is None:
            return
        (values, given), self._unread = self._unread, None
        weight = number("weight", given)
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight!r}")
        if weight:  # the mean of a batch without examples is NaN
            self._weight += weight
            for label in self._sums:
                self._sums[label] += weight * number(label, values[label])


def number(label: str, value: Any) -> float:
    """``value`` as a float; ValueError or TypeError, naming ``label``, if it is no number."""
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(
            f"{label!r} must be a single number in each run of an evaluation, got an array of "
            f"shape {array.shape}"
        )
    try:
        return float(array.reshape(()))
    except TypeError:
        raise TypeError(f"{label!r} must be a real number, got {value!r}") from None
