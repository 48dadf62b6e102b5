"""Which checkpoints to keep, as values.

A rule goes by what is known from the disk alone, and by what was saved before each checkpoint or,
like ``KeepLast`` and ``KeepBest``, ranks them: so a checkpoint that is not wanted once is never
wanted again, and a restarted run keeps what an undisturbed one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from runhooks import arguments
from runhooks.checkpoint.format import Checkpoint

_HOUR_SECS = 3600


class Keep(Protocol):
    """A rule of which checkpoints to keep. A ``Saver`` keeps those that any of its rules wants."""

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Those to keep of ``saved``, which are in the order of saving, less those deleted."""
        ...


@dataclass(frozen=True)
class KeepLast:
    """Keeps the ``n`` checkpoints saved last."""

    n: int

    def __post_init__(self) -> None:
        arguments.given(n=self.n)
        arguments.whole(n=self.n)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return saved[-self.n :]


@dataclass(frozen=True)
class KeepEvery:
    """Keeps one every so many hours: the first saved that long after the one kept before it.

    The hours of the first count from the start of the series.
    """

    hours: float

    def __post_init__(self) -> None:
        arguments.given(hours=self.hours)
        arguments.positive(hours=self.hours)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        wanted = []
        last = saved[-1].series_start
        for checkpoint in saved:
            if checkpoint.wall_time >= last + self.hours * _HOUR_SECS:
                last = checkpoint.wall_time
                wanted.append(checkpoint)
        return wanted


@dataclass(frozen=True)
class KeepBest:
    """Keeps the ``n`` with the best ``metric``, the first saved of equals.

    ``mode``: whether the ``"max"`` or the ``"min"`` is best. One whose metric is unknown or NaN is
    never among the best. The metrics are those that ``Saver(metrics=...)`` gives.

    Raises ValueError for an ``n`` not above zero, or another mode.
    """

    metric: str
    n: int = 1
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        arguments.given(metric=self.metric, n=self.n)
        arguments.instance(str, metric=self.metric)
        arguments.whole(n=self.n)
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        known = [it for it in saved if not math.isnan(it.metrics.get(self.metric, math.nan))]
        # Sorting leaves equals in their order, reversed or not.
        known.sort(key=lambda it: it.metrics[self.metric], reverse=self.mode == "max")
        return known[: self.n]


@dataclass(frozen=True, init=False)
class KeepSteps:
    """Keeps the checkpoints of these global steps: ``KeepSteps(1000, 5000)``.

    Raises ValueError for none, or one below zero, TypeError for what is no whole number.
    """

    steps: tuple[int, ...]

    def __init__(self, *steps: int) -> None:
        if not steps:
            raise ValueError("KeepSteps needs the steps to keep, one by one: KeepSteps(1000, 5000)")
        for step in steps:
            arguments.given(steps=step)
            arguments.whole(0, steps=step)
        object.__setattr__(self, "steps", steps)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return [it for it in saved if it.step in self.steps]


def superseded(keep: Sequence[Keep], saved: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Those of ``saved``, in the order of saving, that no rule wants; never the newest."""
    wanted = {it.path for rule in keep for it in rule.wanted(saved)}
    return [it for it in saved[:-1] if it.path not in wanted]
