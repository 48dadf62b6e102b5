"""``LoggingTensorHook``: logs the values of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from runhooks.graph.base import get_default_graph
from runhooks.hooks.base import (
    TensorFlowHook,
    log_of,
    next_step_of,
    required_global_step,
    step_of,
    step_or_none,
)
from runhooks.hooks.named_tensors import NamedTensors, check_for_end
from runhooks.trigger import Due, SecondOrStepTimer, Timer, Trigger


class RunTimer(SecondOrStepTimer):
    """Triggers in the first run, then once every n runs or every n seconds. Its steps are runs.

    It is asked in every run, or only in the runs that ``announce`` names: the runs in between are
    then counted although the hook sleeps through them.

    Args:
        every_runs: Runs from one time to the next.
        every_secs: Seconds from one time to the next.

    Raises:
        ValueError: Unless exactly one is given, above zero.
    """

    def __init__(self, every_runs: int | None = None, every_secs: float | None = None) -> None:
        super().__init__(every_secs=every_secs, every_steps=every_runs)

    def reset(self) -> None:
        """Start over: the next run triggers."""
        super().reset()
        self.run = 0  # the number of the next run
        self._announced: int | None = None

    def go_on(self, session: RawSession, last_step: int | None, steps_per_run: float) -> None:
        """Go on in ``session``, having last triggered at the global step ``last_step``."""
        if last_step is None or (step := step_or_none(session)) is None:
            return
        if step < last_step:
            self.reset()
        elif self.trigger.every_steps is not None:
            # Nobody counted the runs that the hook slept through before the checkpoint.
            self.resume(round((step - last_step) / steps_per_run))

    def resume(self, runs_since: int) -> None:
        """Go on as if it had triggered ``runs_since`` runs ago."""
        last_run = self.last_triggered_step()
        if last_run is None:
            last_run = 0
            self.update_last_triggered_step(last_run)
        self.run = last_run + 1 + runs_since
        self._announced = None

    def announce(self) -> Due:
        """Return when it triggers next; it need not be asked in the runs before that one."""
        due = self.due()
        if due.step == math.inf:
            return due
        self._announced = int(max(due.step, self.run))
        return Due(runs=self._announced - self.run + 1)

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Return whether it triggers in the run that is about to start."""
        if self._announced is not None:
            self.run, self._announced = self._announced, None
        return self.should_trigger_for_step(self.run)

    def runs_since(self) -> int | None:
        """Return how many runs ago it triggered; None if it has not."""
        last_run = self.last_triggered_step()
        return None if last_run is None else self.run - last_run

    def ensure_triggered(self) -> None:
        """Note that the present run triggers, unless that was done."""
        if self.last_triggered_step() != self.run:
            self.update_last_triggered_step(self.run)

    def end_run(self) -> None:
        """Note that a run has ended well."""
        self.run += 1


class NeverTimer(RunTimer):
    """A ``RunTimer`` that triggers in no run, for what is logged at the end alone."""

    def __init__(self) -> None:
        Timer.__init__(self, Trigger(at_end=True))

    def _next_step(self) -> float:
        return math.inf


class StepTimer(Timer):
    """Follows a trigger by the global step; has the methods of a ``RunTimer``.

    Args:
        trigger: Says when.
    """

    def __init__(self, trigger: Trigger) -> None:
        super().__init__(trigger)
        self._session: RawSession | None = None
        self.run = 0

    def go_on(self, session: RawSession, last_step: int | None, steps_per_run: float) -> None:
        """Go on in ``session``, having last triggered at the global step ``last_step``."""
        self._session = session
        if last_step is not None and last_step != self.last_triggered_step():
            super().update_last_triggered_step(last_step)
        self.start(step_of(session))

    def announce(self) -> Due:
        """Return when it triggers next."""
        return self.due()

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Return whether it triggers in the run that is about to start."""
        return self.should_trigger_for_step(next_step_of(run_context))

    def runs_since(self) -> int | None:
        """Return None: runs do not count."""
        return None

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that the present step triggers, whichever run of the session ``step`` is."""
        return super().update_last_triggered_step(self._step())

    def ensure_triggered(self) -> None:
        """Note that the present step triggers, unless that was done."""
        if self.last_triggered_step() != self._step():
            super().update_last_triggered_step(self._step())

    def end_run(self) -> None:
        """Note that a run has ended well."""
        self.run += 1

    def _step(self) -> int:
        assert self._session is not None, "it goes on in one"
        return step_of(self._session)


class LoggingTensorHook(TensorFlowHook):
    """Logs tensors at level INFO, in the first run and then at a cadence.

    As in ``tf.compat.v1.train``.

        hooks = [rh.LoggingTensorHook(["loss", "global_step"], every_n_iter=100)]

    Args:
        tensors: A tensor or its name, a list of these, or a dict of them by label.
        every_n_iter: Log every this many runs of the session.
        every_n_secs: Log every this many seconds.
        at_end: Whether to fetch and log them at the end as well. If no cadence is given, they are
            logged only at the end.
        formatter: Returns the line for a dict of values by label, or by list element.
        trigger: Says at which global steps to log.

    Raises:
        ValueError: Unless exactly one of ``every_n_iter``, ``every_n_secs`` and ``trigger`` is
            given, or none of them and ``at_end``. In ``begin``: if tensors are to be logged at the
            end and need feeds or inputs.
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
        self._timer: RunTimer | StepTimer
        if at_end and (every_n_iter, every_n_secs, trigger) == (None, None, None):
            self._timer = NeverTimer()
        else:
            arguments.exactly_one(
                every_n_iter=every_n_iter, every_n_secs=every_n_secs, trigger=trigger
            )
            self._timer = StepTimer(trigger) if trigger else RunTimer(every_n_iter, every_n_secs)
        self._named = NamedTensors(tensors)
        self._tensors = self._named.by_key
        self._tag_order = list(self._tensors)
        self._current_tensors: dict[Any, Any] = {}
        self._log_at_end = at_end
        self._trigger = trigger
        self._formatter = formatter
        self._should_trigger = False
        self._logged_step: int | None = None  # the global step of the last line
        self._steps_per_run = 1.0  # above 1 if a run makes several, or other workers make some

    def begin(self) -> None:
        self._current_tensors = self._named.fetches()
        if self._trigger is not None:
            required_global_step(self)
        if self._log_at_end or (self._trigger is not None and self._trigger.at_end):
            check_for_end(get_default_graph(), self._current_tensors)
        self._logged_step = None
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.go_on(session, self._logged_step, self._steps_per_run)

    def next_due(self) -> Due | None:
        return self._timer.announce()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._should_trigger = self._timer.should_trigger(run_context)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # Not by _should_trigger: another thread of the session may be between its two calls.
        if run_values.results is not None:
            runs = self._timer.runs_since()
            self._log_values(run_context.session, run_values.results)
            step, last_step = step_or_none(run_context.session), self._logged_step
            if step is not None and last_step is not None and runs and step > last_step:
                self._steps_per_run = (step - last_step) / runs
            self._logged_step = step
        self._timer.end_run()

    def end(self, session: RawSession) -> None:
        if self._log_at_end or self._is_triggered_at_end(session):
            self._log_values(session, session.run(self._current_tensors))

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

    @property
    def _iter_count(self) -> int:
        return self._timer.run

    @_iter_count.setter
    def _iter_count(self, count: int) -> None:
        self._timer.run = count

    def _log_values(self, session: RawSession, values: dict[Any, Any]) -> None:
        self._log = log_of(session)
        self._log_tensors(values)
        self._timer.ensure_triggered()  # by a subclass that does not log with ours

    def _log_tensors(self, tensor_values: dict[Any, Any]) -> None:
        """Log the values; subclasses override it, as in TensorFlow.

        Args:
            tensor_values: The values by label, or by element of the list of tensors.
        """
        log = self._log
        secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        if self._formatter is not None:
            with np.printoptions(suppress=True):
                log.info("%s", self._formatter(tensor_values))
            return
        line = _line(self._named.labelled(tensor_values))
        log.info("%s", line if secs is None else f"{line} ({secs:.3f} sec)")


def _line(labelled: Sequence[tuple[str, Any]]) -> str:
    def text() -> str:
        return ", ".join(f"{label} = {library_of(value).text(value)}" for label, value in labelled)

    # They do not change how a single number is printed, and take longer than that.
    if all(library_of(it) is not NO_LIBRARY and np.ndim(it) == 0 for _, it in labelled):
        return text()
    with np.printoptions(suppress=True):
        return text()
