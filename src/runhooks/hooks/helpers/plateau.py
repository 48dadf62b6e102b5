"""``Plateau``: tells when a metric has stopped improving, by the rule of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runhooks import arguments


class Plateau:
    """Counts values of a metric that are no better than the best, as ``ReduceLROnPlateau`` does.

    Args:
        mode: ``"min"`` if lower is better, ``"max"`` if higher.
        patience: How many values in a row may be no better.
        threshold: By how much a value must be better to count.
        threshold_mode: ``"rel"``: ``threshold`` is a fraction of the best value; ``"abs"``: a
            difference.
        cooldown: How many values after a plateau do not count.

    Raises:
        ValueError: For another mode, or a number below 0.
        TypeError: For what is not a number.
    """

    def __init__(
        self, mode: str, patience: int, threshold: float, threshold_mode: str, cooldown: int
    ) -> None:
        _one_of(("min", "max"), mode=mode)
        _one_of(("rel", "abs"), threshold_mode=threshold_mode)
        arguments.given(patience=patience, threshold=threshold, cooldown=cooldown)
        arguments.whole(0, patience=patience, cooldown=cooldown)
        arguments.not_negative(threshold=threshold)
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._threshold = threshold
        self._is_relative = threshold_mode == "rel"
        self._cooldown = cooldown
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        #: The best value, and how many since then were no better.
        self.best, self.bad = self._sign * math.inf, 0
        self._cooling = 0

    def ends_with(self, value: float) -> bool:
        """Take the next value; return whether patience has ended with it. A NaN is no better."""
        if self._sign * value < self._sign * self._needed():
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self._cooling > 0:
            self._cooling -= 1
            self.bad = 0
        if self.bad <= self._patience:
            return False
        self._cooling, self.bad = self._cooldown, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return its state, for a hook's ``state_dict``."""
        return {"best": self.best, "bad": self.bad, "cooling": self._cooling}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned."""
        self.best, self.bad, self._cooling = state["best"], state["bad"], state["cooling"]

    def _needed(self) -> float:
        if self._is_relative and math.isfinite(self.best):
            return self.best * (1 - self._sign * self._threshold)
        return self.best if self._is_relative else self.best - self._sign * self._threshold


def _one_of(allowed: tuple[str, ...], **given: str) -> None:
    for name, value in given.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")
