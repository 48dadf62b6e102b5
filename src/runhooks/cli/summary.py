"""Curves in a few numbers, and their best values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from runhooks.cli.output import CommandError
from runhooks.cli.runs import matches, no_such
from runhooks.events import Run, Scalars

Goal = Literal["min", "max"]
AnyItem = TypeVar("AnyItem")

_LOW = """
    bpc bpd cer cost divergence err error errors fid kl loss losses mae mape mse nll perplexity ppl
    regret rmse wer
"""
_HIGH = """
    acc accuracy ap auc auroc bleu correct dice f1 iou map miou mrr ndcg precision psnr r2 recall
    return reward rouge score ssim
"""


class Goals:
    """Which value of a tag is its best: --max tells, else --min, else a word of the tag."""

    def __init__(self, lower: Sequence[str] | None, higher: Sequence[str] | None) -> None:
        self._lower, self._higher = lower or (), higher or ()
        if both := [it for it in self._lower if it in self._higher]:
            raise CommandError(f"{both[0]!r} is given to both --min and --max")

    def check(self, tags: Collection[str]) -> None:
        """Raise CommandError if a pattern matches none of ``tags``."""
        for option, patterns in (("--min", self._lower), ("--max", self._higher)):
            for pattern in patterns:
                if not any(matches(tag, pattern) for tag in tags):
                    raise CommandError(
                        f"{option}: {no_such('scalar', pattern, sorted(tags), ' in the table')}"
                    )

    def of(self, tag: str) -> Goal | None:
        """Return the goal of ``tag``; None if nothing tells, or if its words disagree."""
        if any(matches(tag, pattern) for pattern in self._higher):
            return "max"
        if any(matches(tag, pattern) for pattern in self._lower):
            return "min"
        words = set(re.findall(r"[a-z]+\d?", re.sub(r"([a-z])([A-Z])", r"\1 \2", tag).lower()))
        low, high = not words.isdisjoint(_LOW.split()), not words.isdisjoint(_HIGH.split())
        if low == high:
            return None
        return "min" if low else "max"

    def decided(self, tag: str) -> Goal:
        goal = self.of(tag)
        if goal is None:
            raise CommandError(
                f"say which values of {tag!r} are the best: --min {tag!r} or --max {tag!r}"
            )
        return goal


class Extreme(NamedTuple):
    value: float
    step: int  # the first with this value


class ScalarSummary(NamedTuple):
    """The points of a scalar tag; ``min``, ``max`` and ``best`` are of finite values, if any.

    ``first_step`` is the least step and ``last_step`` the greatest.
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


def best_first(
    items: Sequence[AnyItem], goal: Goal, summary_of: Callable[[AnyItem], ScalarSummary | None]
) -> list[AnyItem]:
    """Return ``items`` in the order of their best values, those without one last."""

    def key(item: AnyItem) -> float:
        summary = summary_of(item)
        if summary is None or summary.min is None or summary.max is None:
            return np.inf
        return summary.min.value if goal == "min" else -summary.max.value

    return sorted(items, key=key)


def summaries_of(run: Run, goals: Goals) -> list[ScalarSummary]:
    return [
        summarized(tag, scalars, goals.of(tag))
        for tag, scalars in run.scalars.items()
        if len(scalars.steps)
    ]


def summarized(tag: str, scalars: Scalars, goal: Goal | None) -> ScalarSummary:
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
        first_step=int(steps.min()),
        last_step=int(steps.max()),
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
