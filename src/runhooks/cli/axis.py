"""``Axis``: an interval, and the round numbers in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.cli import formats


class Axis(NamedTuple):
    """The interval that a chart shows, and where it has ticks, both in the units of the data."""

    low: float
    high: float
    ticks: NDArray[np.float64]

    @classmethod
    def over(cls, data: Sequence[NDArray[np.float64]], ticks: int, whole: bool = False) -> Axis:
        """Return the axis over finite ``data``, with about as many ``ticks``, integers if whole."""
        filled = [it for it in data if len(it)]
        low = min(float(it.min()) for it in filled)
        high = max(float(it.max()) for it in filled)
        if low / 2 == high / 2:
            room = max(abs(low) / 10, 1.0) if whole else abs(low) / 10 or 1.0
            low, high = max(low - room, -_LARGEST), min(low + room, _LARGEST)
        return cls(low, high, _round_numbers(low, high, ticks, whole))

    @property
    def labels(self) -> list[str]:
        """What stands at the ticks."""
        return [formats.number(float(it)) for it in self.ticks]

    def placed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where ``values`` are between the ends, which are 0 and 1."""
        low, high = self.low / 2, self.high / 2  # half: the difference may be too large
        return (values / 2 - low) / (high - low)


_LARGEST = float(np.finfo(np.float64).max)


def _round_numbers(low: float, high: float, ticks: int, whole: bool) -> NDArray[np.float64]:
    rough = high / ticks - low / ticks
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    if not power:  # too close to zero to be divided any further
        return np.array([low, high])
    step = next(it * power for it in (1, 2, 5, 10) if it * power >= rough)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step), math.floor(high / step)
    return np.array([it * step for it in range(first, last + 1)])
