"""``PruningHook``: reports a metric to Optuna, and ends the trial that Optuna gives up."""

from __future__ import annotations

from runhooks.bridges.requirement import require
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.graph import Tensor
from runhooks.hooks.helpers.base import TimedHook, next_step_of, required_global_step, step_of
from runhooks.hooks.helpers.evaluations import EvaluationMetric, EvaluationTimer, number
from runhooks.hooks.helpers.named_tensors import NamedTensors
from runhooks.trigger import Due, Trigger, timer_of

require("optuna", "optuna>=4")

import optuna  # noqa: E402


class PruningHook(TimedHook):
    """Reports a metric to an Optuna trial, and raises ``TrialPruned`` if Optuna prunes it.

    The error passes through the session's ``with`` block, or the loop of a bridge, to the study.
    The trial ends as after any error: ``end`` is not called on hooks, and no last checkpoint is
    saved.

        def objective(trial):
            ...
            accuracy = rh.EvaluationHook({"accuracy": correct}, every_n_steps=100)
            pruning = rh.bridges.optuna.PruningHook(trial, accuracy.metric("accuracy"))
            with rh.MonitoredTrainingSession(hooks=[accuracy, pruning]) as sess:
                while not sess.should_stop():
                    sess.run(train_op)
            return accuracy.metric("accuracy").last()

    Args:
        trial: The trial.
        metric: A metric of an ``EvaluationHook`` in the same session, of which every value is
            reported; or a tensor or its name, a single number that is fetched every
            ``every_n_steps``.
        every_n_steps: For a tensor: fetch it at the multiples of this number.
        trigger: For a tensor: says when to fetch it.

    Raises:
        ValueError: For a tensor without ``every_n_steps`` or ``trigger``, and a metric with one of
            these.
        TypeError: If ``trial`` has no ``report``.
    """

    def __init__(
        self,
        trial: optuna.trial.BaseTrial,
        metric: EvaluationMetric | Tensor | str,
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if not isinstance(trial, optuna.trial.BaseTrial):
            raise TypeError(f"trial must be a trial of Optuna, got {trial!r}")
        self._evaluated = metric if isinstance(metric, EvaluationMetric) else None
        if self._evaluated is None:
            super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
            self._tensors = NamedTensors({"metric": metric})
        elif every_n_steps is not None or trigger is not None:
            raise ValueError(
                "every_n_steps and trigger must be left out for a metric of an evaluation, each "
                f"value of which counts, got every_n_steps={every_n_steps!r}, trigger={trigger!r}"
            )
        else:
            super().__init__(EvaluationTimer(self._evaluated.evaluation))
        self._trial = trial
        self._name = metric if isinstance(metric, str) else metric.name
        self._reported: int | None = None

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        if self._evaluated is None:
            self._request = SessionRunArgs(self._tensors.fetches())

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session))

    def next_due(self) -> Due | None:
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_due = self._evaluated is None and self._timer.should_trigger_for_step(
            next_step_of(run_context)
        )
        return self._request if is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if not self._timer.should_trigger_for_step(step):
            return
        if self._evaluated is not None:
            self._report(step, self._evaluated.last())
        elif run_values.results is not None:
            self._report(step, number(self._name, run_values.results["metric"]))

    def _report(self, step: int, value: float) -> None:
        self._timer.update_last_triggered_step(step)
        # After a recovery steps are made again; Optuna takes a step once.
        if self._reported is None or step > self._reported:
            self._trial.report(value, step)
            self._reported = step
        if self._trial.should_prune():
            raise optuna.TrialPruned(f"{self._name!r} is {value:g} at step {step}")
