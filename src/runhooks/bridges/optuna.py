"""``PruningHook``: reports a metric to Optuna, and ends a pruned trial."""

from __future__ import annotations

from runhooks.bridges import require
from runhooks.contract import RawSession
from runhooks.graph import Tensor
from runhooks.hooks.metrics import EvaluationMetric, MetricHook
from runhooks.trigger import Trigger

require("optuna", "optuna>=4")

import optuna  # noqa: E402


class PruningHook(MetricHook):
    """Reports a metric to an Optuna trial, and raises ``TrialPruned`` if Optuna prunes it.

    The error passes through the session's ``with`` block, or the loop of a bridge, to the study, as
    any error does: ``end`` is not called on hooks, and no last checkpoint is saved.

    Args:
        trial: The trial.
        metric: A metric of an ``EvaluationHook`` in the same session, of which every value is
            reported; or a tensor or its name, a single number.
        every_n_steps: Fetch a tensor at the multiples of this number.
        trigger: When to fetch a tensor.
        every_n_epochs: Fetch a tensor at the last step of every so many epochs.

    Raises:
        ValueError: For a tensor without exactly one cadence, and a metric with one.
        TypeError: If ``trial`` has no ``report``.
    """

    def __init__(
        self,
        trial: optuna.trial.BaseTrial,
        metric: EvaluationMetric | Tensor | str,
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
        every_n_epochs: float | None = None,
    ) -> None:
        if not isinstance(trial, optuna.trial.BaseTrial):
            raise TypeError(f"trial must be a trial of Optuna, got {trial!r}")
        super().__init__(metric, every_n_steps, trigger, every_n_epochs)
        self._trial = trial
        self._reported: int | None = None

    def _act(self, session: RawSession, step: int, value: float) -> None:
        # After a recovery steps are made again; Optuna takes a step once.
        if self._reported is None or step > self._reported:
            self._trial.report(value, step)
            self._reported = step
        if self._trial.should_prune():
            raise optuna.TrialPruned(f"{self._metric!r} is {value:g} at step {step}")
