"""``ScalarSummary``: a curve in a few numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runhooks.cli.goals import Goal
from runhooks.events import Scalars


class Extreme(NamedTuple):
    """A value and the first step it was at."""

    value: float
    step: int


class ScalarSummary(NamedTuple):
    """The points of a scalar tag.

    ``min``, ``max`` and ``best`` are of the finite values, None if there are none; ``best`` is None
    as well if there is no ``goal``. ``non_finite``: how many are NaN or infinite. Times are in
    seconds since the epoch.
    """

    tag: str
    points: int
    first_step: int
    last_step: int
    first_time: float
    last_time: float
    first: float
    last: float
    min: Extreme | None
    max: Extreme | None
    best: Extreme | None
    goal: Goal | None
    non_finite: int


def summarized(tag: str, scalars: Scalars, goal: Goal | None) -> ScalarSummary:
    """Return the summary of ``scalars``, which has at least one point."""
    steps, values, times = scalars
    finite = np.flatnonzero(np.isfinite(values))
    low = high = None
    if len(finite):
        at_low, at_high = finite[values[finite].argmin()], finite[values[finite].argmax()]
        low = Extreme(float(values[at_low]), int(steps[at_low]))
        high = Extreme(float(values[at_high]), int(steps[at_high]))
    return ScalarSummary(
        tag=tag,
        points=len(values),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        first_time=float(times[0]),
        last_time=float(times[-1]),
        first=float(values[0]),
        last=float(values[-1]),
        min=low,
        max=high,
        best={"min": low, "max": high, None: None}[goal],
        goal=goal,
        non_finite=len(values) - len(finite),
    )
