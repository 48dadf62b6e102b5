"""``ValidationHook``: the validations of a framework, for hooks that act on their metrics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.errors import add_note
from runhooks.hooks.base import SummaryWriter, step_of
from runhooks.hooks.metrics import EvaluatingHook, Evaluation, number
from runhooks.trigger import Due, Timer, Trigger

#: The framework evaluates when it likes; the hook itself never does.
_NEVER = Trigger(at_end=True)


class ValidationHook(EvaluatingHook):
    """Collects the metrics of the validations that a framework runs, for use with a bridge.

    It replaces ``EvaluationHook`` in a framework's loop: pass ``metric(name)`` to
    ``stop_if_no_decrease_hook`` and similar functions, ``ReduceOnPlateauHook`` or ``PruningHook``.
    They act after the validation, before the next batch. A metric that is no single number, such as
    a confusion matrix, is left out.

        validation = rh.bridges.ValidationHook(output_dir="runs/a/eval")
        loss = validation.metric("val_loss")
        stop = rh.stop_if_no_decrease_hook(loss, max_steps_without_decrease=500)
        model.fit(..., callbacks=[rh.bridges.keras.Hooks([validation, stop])])

    Args:
        output_dir: The directory to write the metrics to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
        hook_name: As in ``SessionRunHook``.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        hook_name: str | None = None,
    ) -> None:
        super().__init__(Timer(_NEVER), output_dir, summary_writer, hook_name)
        self._metrics: Mapping[str, float] = {}
        self._is_new = False

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._is_new = False
        super().after_create_session(session, coord)

    def take(self, session: RawSession, metrics: Mapping[str, Any], is_own: bool) -> None:
        """Take the metrics of a validation at the current step.

        Args:
            session: The session of the training.
            metrics: The metrics by name; those that are no single numbers are left out.
            is_own: Whether it has to have the metrics that hooks act on. Another is ignored if it
                lacks one.

        Raises:
            TypeError: If a metric that hooks act on is no number.
            ValueError: If there is no such metric, or it is an array.
        """
        if is_own or self._wanted <= metrics.keys():
            self._metrics, self._is_new = self._numbers(metrics), True
            self._evaluate_in_training(session, None)

    def next_due(self) -> Due | None:
        return Due(step=self.evaluated_step or 0) if self._is_new else Due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._is_new = step_of(run_context.session) != self.evaluated_step

    def end(self, session: RawSession) -> None:
        pass

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for name, value in metrics.items():
            try:
                found[name] = number(name, value)
            except (TypeError, ValueError) as error:
                if name in self._wanted:
                    add_note(error, f"hooks act on this metric of {self.title}")
                    raise
        return found

    def _run_evaluation(self, session: RawSession, training: SessionRunArgs | None) -> Evaluation:
        return Evaluation(self._metrics, 1)
