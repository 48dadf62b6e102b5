"""``LoggingTensorHook``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np

from runhooks import arguments
from runhooks.arrays import library_of
from runhooks.arrays.registry import NO_LIBRARY
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph.base import get_default_graph
from runhooks.hooks.base import (
    NamedTensors,
    TensorFlowHook,
    check_for_end,
    log_of,
    next_step_of,
    required_global_step,
    step_of,
)
from runhooks.trigger import Due, SecondOrStepTimer, Timer, Trigger


class LoggingTensorHook(TensorFlowHook):
    """Logs tensors at level INFO, in the first run and then at a cadence.

    As in ``tf.compat.v1.train``.

        hooks = [rh.LoggingTensorHook(["loss", "global_step"], every_n_iter=100)]

    Args:
        tensors: A tensor or its name, a list of these, or a dict of them by label.
        every_n_iter: Log every this many runs.
        every_n_secs: Log every this many seconds.
        at_end: Whether to log at the end, too; without a cadence, only then.
        formatter: Returns the line for a dict of values by label, or by list element.
        trigger: At which global steps to log.

    Raises:
        ValueError: Unless exactly one cadence is given, or ``at_end`` alone. In ``begin``: if
            tensors to log at the end need feeds or inputs.
    """

    runs_on = "chief"
    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.steps(-math.inf, every_n_iter=every_n_iter)
        if every_n_iter is not None and every_n_iter < 1:
            raise ValueError(f"invalid every_n_iter: it must be above 0, got {every_n_iter!r}")
        arguments.positive(every_n_secs=every_n_secs)
        arguments.instance(Trigger, trigger=trigger)
        arguments.function(formatter=formatter)
        cadence = {"every_n_iter": every_n_iter, "every_n_secs": every_n_secs, "trigger": trigger}
        self._timer = _timer_of(cadence, at_end)
        self._named = NamedTensors(tensors)
        self._tensors = self._named.by_key
        self._tag_order = list(self._tensors)
        self._current_tensors: dict[Any, Any] = {}
        self._log_at_end = at_end
        self._trigger = trigger
        self._formatter = formatter
        self._should_trigger = False
        self._iter_count = 0  # the number of the run, or the global step
        self._announced: int | None = None  # the run in which the hook is due
        self._logged_step: int | None = None
        self._has_line = False  # of this process: the time since another's line tells nothing
        self._steps_per_run = 1.0  # above 1 if a run makes several, or other workers some

    def begin(self) -> None:
        self._current_tensors = self._named.fetches()
        if self._trigger is not None:
            required_global_step(self)
        if self._log_at_end or self._timer.trigger.at_end:
            check_for_end(get_default_graph(), self._current_tensors)
        self._logged_step = None
        self._has_line = False
        self._start_over()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step, last_step = session_of(session).global_step, self._logged_step
        if self._trigger is not None:
            if last_step is not None and last_step != self._timer.last_triggered_step():
                self._timer.load_state_dict({"last_triggered_step": last_step})
            self._timer.start(step_of(session), session_of(session).epochs)
        elif step is not None and last_step is not None:
            if step < last_step:
                self._start_over()
            elif self._timer.trigger.every_steps is not None:
                # Nobody counted the runs that the hook slept through before the checkpoint.
                runs_since = round((step - last_step) / self._steps_per_run)
                last_run = self._timer.last_triggered_step()
                if last_run is None:
                    self._timer.update_last_triggered_step(0)
                self._iter_count, self._announced = (last_run or 0) + 1 + runs_since, None

    def next_due(self) -> Due | None:
        due = self._timer.due()
        if self._trigger is not None or due.step == math.inf:
            return due
        self._announced = int(max(due.step, self._iter_count))
        return Due(runs=self._announced - self._iter_count + 1)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._trigger is not None:
            self._iter_count = next_step_of(run_context)
        elif self._announced is not None:
            self._iter_count, self._announced = self._announced, None
        self._should_trigger = self._timer.should_trigger_for_step(self._iter_count)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # Not by _should_trigger: another thread may be between its two calls.
        if run_values.results is not None:
            last_run, last_step = self._timer.last_triggered_step(), self._logged_step
            self._log_values(run_context.session, run_values.results)
            self._logged_step = step = session_of(run_context.session).global_step
            counts = last_run is not None and self._trigger is None
            runs = self._iter_count - (last_run or 0) if counts else 0
            if step is not None and last_step is not None and runs and step > last_step:
                self._steps_per_run = (step - last_step) / runs
        if self._trigger is None:
            self._iter_count += 1

    def end(self, session: RawSession) -> None:
        is_logged = session_of(session).global_step == self._logged_step
        if self._log_at_end or (self._timer.trigger.at_end and not is_logged):
            self._log_values(session, session.run(self._current_tensors))

    def state_dict(self) -> Mapping[str, Any]:
        if self._logged_step is None:
            return {}
        return {"logged_step": self._logged_step, "steps_per_run": self._steps_per_run}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._logged_step = state.get("logged_step")
        self._steps_per_run = state.get("steps_per_run", 1.0)
        if self._logged_step is None:
            self._start_over()

    def _start_over(self) -> None:
        self._timer.reset()
        self._iter_count, self._announced = 0, None

    def _log_values(self, session: RawSession, values: dict[Any, Any]) -> None:
        self._log = log_of(session)
        if self._trigger is not None:
            self._iter_count = step_of(session)
        self._log_tensors(values)
        if self._timer.last_triggered_step() != self._iter_count:
            self._timer.update_last_triggered_step(self._iter_count)

    def _log_tensors(self, tensor_values: dict[Any, Any]) -> None:
        """Log the values by label or list element; subclasses override it."""
        log = self._log
        secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        is_first, self._has_line = not self._has_line, True
        if self._formatter is not None:
            with np.printoptions(suppress=True):
                log.info("%s", self._formatter(tensor_values))
            return
        line = _line(self._named.labelled(tensor_values))
        log.info("%s", line if secs is None or is_first else f"{line} ({secs:.3f} sec)")


def _timer_of(cadence: Mapping[str, Any], at_end: bool) -> Timer:
    if at_end and not any(it is not None for it in cadence.values()):
        return Timer(Trigger(at_end=True))
    arguments.exactly_one(**cadence)
    if cadence["trigger"] is not None:
        return Timer(cadence["trigger"])
    # Its steps are runs, as in TensorFlow.
    return SecondOrStepTimer(cadence["every_n_secs"], cadence["every_n_iter"])


def _line(labelled: Sequence[tuple[str, Any]]) -> str:
    # Options take longer, and do not change a single number.
    are_numbers = all(library_of(it) is not NO_LIBRARY and np.ndim(it) == 0 for _, it in labelled)
    with nullcontext() if are_numbers else np.printoptions(suppress=True):
        return ", ".join(f"{label} = {library_of(value).text(value)}" for label, value in labelled)
