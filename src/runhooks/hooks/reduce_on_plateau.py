"""``ReduceOnPlateauHook``: reduces a learning rate when a metric has stopped improving."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks import arguments
from runhooks.contract import RawSession, StopSignal
from runhooks.engines.foreign import session_of
from runhooks.graph import Tensor
from runhooks.hooks.base import step_of
from runhooks.hooks.metrics import EvaluationMetric, MetricHook
from runhooks.trigger import Trigger


def _one_of(allowed: tuple[str, ...], **given: str) -> None:
    for name, value in given.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


_log = logging.getLogger("runhooks")

#: A smaller change of a rate is not made, as in PyTorch.
_LEAST_CHANGE = 1e-8


class ReduceOnPlateauHook(MetricHook):
    """Multiplies a learning rate by ``factor`` when a metric has stopped improving.

    The rule and the resulting rates are those of PyTorch's ``ReduceLROnPlateau``. A resumed run
    reduces the rate at the same steps as an uninterrupted one. Each of several ranks uses its own
    metric, which has to be the same on all of them.

        evaluation = rh.EvaluationHook({"loss": test_loss}, every_n_steps=500)
        rate = "state/opt_state/hyperparams/learning_rate"  # of optax.inject_hyperparams
        plateau = rh.ReduceOnPlateauHook(evaluation.metric("loss"), rate, factor=0.5, patience=3)

    Args:
        metric: A metric of an ``EvaluationHook`` in the same session, of which every value counts;
            or a tensor or its name, a single number that is fetched every ``every_n_steps``.
        learning_rate: Its name in checkpoints: a variable or a part of one. On an ``rh.torch``
            graph: ``"learning_rate"`` or ``"optimizer/learning_rate"`` for all parameter groups of
            the optimizer, ``"optimizer/learning_rate/1"`` for one of them.
        mode: ``"min"`` if a lower metric is better, ``"max"`` if a higher one is.
        factor: The factor for the rate; below 1.
        patience: How many values in a row may fail to improve before the rate is reduced.
        threshold: How much better than the best one a value must be.
        threshold_mode: ``"rel"``: ``threshold`` is a fraction of the best value; ``"abs"``: a
            difference.
        cooldown: How many values to ignore after a reduction.
        min_lr: The lowest rate.
        every_n_steps: For a tensor: fetch it at the multiples of this number.
        trigger: For a tensor: says when to fetch it.
        every_n_epochs: For a tensor: fetch it at the last step of every so many epochs.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: For a number out of its range; for a tensor without exactly one of
            ``every_n_steps``, ``every_n_epochs`` and ``trigger``, and a metric with one of these;
            when a session opens, if nothing is called ``learning_rate``.
        TypeError: For an argument of the wrong type.
    """

    def __init__(
        self,
        metric: EvaluationMetric | Tensor | str,
        learning_rate: str = "learning_rate",
        *,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        every_n_steps: int | None = None,
        trigger: Trigger | None = None,
        every_n_epochs: float | None = None,
        hook_name: str | None = None,
    ) -> None:
        arguments.given(metric=metric, learning_rate=learning_rate, factor=factor, min_lr=min_lr)
        arguments.instance(str, learning_rate=learning_rate)
        arguments.given(patience=patience, threshold=threshold, cooldown=cooldown)
        arguments.positive(factor=factor)
        arguments.whole(0, patience=patience, cooldown=cooldown)
        arguments.not_negative(min_lr=min_lr, threshold=threshold)
        _one_of(("min", "max"), mode=mode)
        _one_of(("rel", "abs"), threshold_mode=threshold_mode)
        if factor >= 1:
            raise ValueError(f"factor must be below 1, got {factor!r}")
        super().__init__(metric, every_n_steps, trigger, every_n_epochs)
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._threshold, self._is_relative = threshold, threshold_mode == "rel"
        self._cooldown = cooldown
        self._learning_rate = learning_rate
        self._factor = factor
        self._min_lr = min_lr
        self.hook_name = hook_name

    def begin(self) -> None:
        super().begin()
        self._best = self._sign * math.inf
        self._bad = 0  # how many values since then were no better
        self._cooling = 0

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._check_name(session_of(session))
        step = step_of(session)
        if self._evaluated is not None and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._take(session, step, None)

    def state_dict(self) -> Mapping[str, Any]:
        own = {"best": self._best, "bad": self._bad, "cooling": self._cooling}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._best, self._bad, self._cooling = state["best"], state["bad"], state["cooling"]

    def _check_name(self, session: RawSession) -> None:
        try:
            session.read(self._learning_rate)
        except ValueError as error:
            if "hyperparams" not in self._learning_rate.split("/"):
                raise
            raise ValueError(
                f"{error}; optax has a rate in its state only if the optimizer was made with "
                "optax.inject_hyperparams(optax.adam)(learning_rate=...)"
            ) from None

    def _act(self, session: RawSession, step: int, value: float) -> None:
        if self._patience_ends_with(value):
            self._reduce(session_of(session), step)

    def _patience_ends_with(self, value: float) -> bool:
        """Take the next value; return whether patience has ended with it. A NaN is no better."""
        if self._sign * value < self._sign * self._needed():
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._cooling > 0:
            self._cooling -= 1
            self._bad = 0
        if self._bad <= self._patience:
            return False
        self._cooling, self._bad = self._cooldown, 0
        return True

    def _needed(self) -> float:
        """Return what a value must be better than."""
        if self._is_relative and math.isfinite(self._best):
            return self._best * (1 - self._sign * self._threshold)
        return self._best if self._is_relative else self._best - self._sign * self._threshold

    def _reduce(self, session: RawSession, step: int) -> None:
        rates = session.read(self._learning_rate)
        new = {name: np.maximum(rate * self._factor, self._min_lr) for name, rate in rates.items()}
        changed = {
            name: reduced.astype(rates[name].dtype)
            for name, reduced in new.items()
            if np.any(rates[name] - reduced > _LEAST_CHANGE)
        }
        if not changed:
            return
        session.assign(changed)
        for name, rate in changed.items():
            _log.info(
                "%s reduces %r from %s to %s at step %d: the best value of %r is %g",
                *(self.hook_name or type(self).__name__, name, rates[name], rate, step),
                *(self._metric, self._best),
            )
