"""``TrackingHook``: numbers of a session to a client of W&B, MLflow, Comet or Aim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
)
from runhooks.hooks.base import TimedHook, next_step_of, step_of
from runhooks.hooks.metrics import number
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.trigger import Due, Trigger, timer_of


class TrackingHook(TimedHook):
    """Fetches numbers at a cadence, and passes them to ``log`` with the global step.

    ``log`` is the tracker's own function: ``wandb_run.log``, ``mlflow.log_metrics``,
    ``comet_experiment.log_metrics``, ``aim_run.track``. It is called in the training thread, which
    waits for it; the W&B and MLflow writers in ``rh.summary`` take whole summaries and do not make
    training wait. Open and close the client yourself.

    Args:
        log: Called as ``log(numbers, step=step)``, with a dict of numbers by name.
        tensors: Tensors, or their names: a dict by the name to log them under, or a list.
        every_n_steps: Log at the multiples of this number.
        trigger: Says when to log.

    Raises:
        TypeError: If ``log`` cannot be called or ``tensors`` is neither a dict nor a list.
        ValueError: Unless exactly one of ``every_n_steps`` and ``trigger`` is given; in a run, for
            a value that is not a single number.
    """

    def __init__(
        self,
        log: Callable[..., Any],
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if not callable(log):
            raise TypeError(f"log must be a function of numbers and a step, got {log!r}")
        super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
        self._log = log
        self._tensors = NamedTensors(tensors)

    def begin(self) -> None:
        super().begin()
        self._request = SessionRunArgs(self._tensors.fetches())

    def next_due(self) -> Due | None:
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_due = self._timer.should_trigger_for_step(next_step_of(run_context))
        return self._request if is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results is None:
            return
        step = step_of(run_context.session)
        self._timer.update_last_triggered_step(step)
        labelled = self._tensors.labelled(run_values.results)
        self._log({name: number(name, value) for name, value in labelled}, step=step)
