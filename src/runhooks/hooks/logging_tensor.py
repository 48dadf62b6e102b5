"""``LoggingTensorHook``: logs the values of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.graph.graph import get_default_graph
from runhooks.hooks.at_end import check_for_end
from runhooks.hooks.global_step import required_global_step, step_or_none
from runhooks.hooks.log import log_of
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.hooks.run_timer import RunTimer
from runhooks.hooks.step_timer import StepTimer
from runhooks.summary.kinds.real_array import read_array
from runhooks.trigger import Due, Trigger


class LoggingTensorHook(SessionRunHook):
    """Logs tensors, at level INFO, in the first run and then every so often.

    ``tensors``: tensors or their names, as a dict by label or as a list. ``every_n_iter``: once in
    that many runs of this session; ``every_n_secs``: once in that many seconds; or ``trigger``, by
    global steps. ``at_end``: fetch and log them at the end too, or only then. ``formatter``: makes
    the line of a dict of values by label (by element, for a list). As in ``tf.compat.v1.train``.

    Raises ValueError unless exactly one of ``every_n_iter``, ``every_n_secs`` and ``trigger`` is
    given, or none and ``at_end``; and in ``begin``, if they are to be logged at the end and need
    feeds or inputs.
    """

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
        self._timer: RunTimer | StepTimer | None = None
        if not at_end or (every_n_iter, every_n_secs, trigger) != (None, None, None):
            arguments.exactly_one(
                every_n_iter=every_n_iter, every_n_secs=every_n_secs, trigger=trigger
            )
            self._timer = StepTimer(trigger) if trigger else RunTimer(every_n_iter, every_n_secs)
        self._tensors = NamedTensors(tensors)
        self._fetches: dict[Any, Any] = {}
        self._at_end = at_end
        self._trigger = trigger
        self._formatter = formatter
        self._asked = False
        self._logged_step: int | None = None  # the global step when it was logged last
        self._steps_per_run = 1.0  # more where a run makes several, or others make some meanwhile

    def begin(self) -> None:
        self._fetches = self._tensors.fetches()
        if self._trigger is not None:
            required_global_step(self)
        if self._at_end or (self._trigger is not None and self._trigger.at_end):
            check_for_end(get_default_graph(), self._fetches)
        self._logged_step = None
        if self._timer is not None:
            self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        if self._timer is not None:
            self._timer.start(session, self._logged_step, self._steps_per_run)

    def next_due(self) -> Due | None:
        return Due() if self._timer is None else self._timer.announce()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._asked = self._timer is not None and self._timer.should_trigger(run_context)
        return SessionRunArgs(self._fetches) if self._asked else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer is None:
            return
        if self._asked:
            secs, runs = self._timer.trigger()
            self._log(run_context.session, run_values.results, secs)
            step, last_step = step_or_none(run_context.session), self._logged_step
            if step is not None and last_step is not None and runs and step > last_step:
                self._steps_per_run = (step - last_step) / runs
            self._logged_step = step
        self._timer.end_run()

    def end(self, session: RawSession) -> None:
        if self._at_end or self._is_triggered_at_end(session):
            secs = None if self._timer is None else self._timer.trigger()[0]
            self._log(session, session.run(self._fetches), secs)

    def state_dict(self) -> Mapping[str, Any]:
        if self._logged_step is None:
            return {}
        return {"logged_step": self._logged_step, "steps_per_run": self._steps_per_run}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._logged_step = state["logged_step"]
        self._steps_per_run = state.get("steps_per_run", 1.0)

    def _is_triggered_at_end(self, session: RawSession) -> bool:
        at_end = self._trigger is not None and self._trigger.at_end
        return at_end and step_or_none(session) != self._logged_step

    def _log(self, session: RawSession, values: dict[Any, Any], secs: float | None) -> None:
        log = log_of(session)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                log.info("%s", self._formatter(values))
                return
            line = ", ".join(
                f"{label} = {_shown(value)!s}" for label, value in self._tensors.labelled(values)
            )
        log.info("%s", line if secs is None else f"{line} ({secs:.3f} sec)")


def _shown(value: Any) -> Any:
    # Tensors of torch and TensorFlow show their class, and where they are; others read like arrays.
    if hasattr(value, "detach"):
        return read_array(value)
    return value.numpy() if callable(getattr(value, "numpy", None)) else value
