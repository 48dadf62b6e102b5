"""``RunTimer`` and ``StepTimer``: when ``LoggingTensorHook`` logs, by runs or by global steps."""

from __future__ import annotations

import math

from runhooks.contract import RawSession, SessionRunContext
from runhooks.hooks.helpers.session import next_step_of, step_of, step_or_none
from runhooks.trigger import Due, SecondOrStepTimer, Timer, Trigger


class RunTimer:
    """Triggers in the first run, then once every n runs or every n seconds.

    It is asked in every run, or only in the runs that ``announce`` names: the runs in between are
    then counted although the hook sleeps through them.

    Args:
        every_runs: Runs from one time to the next.
        every_secs: Seconds from one time to the next.

    Raises:
        ValueError: Unless exactly one is given, above zero.
    """

    def __init__(self, every_runs: int | None = None, every_secs: float | None = None) -> None:
        self._timer = SecondOrStepTimer(every_secs=every_secs, every_steps=every_runs)
        self._by_runs = every_runs is not None
        self.reset()

    def reset(self) -> None:
        """Start over: the next run triggers."""
        self._timer.reset()
        self.run = 0  # the number of the next run
        self._announced: int | None = None

    def start(self, session: RawSession, last_step: int | None, steps_per_run: float = 1.0) -> None:
        """Go on in ``session``, having last triggered at the global step ``last_step``."""
        if last_step is None or (step := step_or_none(session)) is None:
            return
        if step < last_step:
            self.reset()
        elif self._by_runs:
            # Nobody counted the runs that the hook slept through before the checkpoint.
            self.resume(round((step - last_step) / steps_per_run))

    def resume(self, runs_since: int) -> None:
        """Go on as if it had triggered ``runs_since`` runs ago."""
        last_run = self._timer.last_triggered_step()
        if last_run is None:
            last_run = 0
            self._timer.update_last_triggered_step(last_run)
        self.run = last_run + 1 + runs_since
        self._announced = None

    def announce(self) -> Due:
        """Return when it triggers next; it need not be asked in the runs before that one."""
        due = self._timer.due()
        if due.step == math.inf:
            return due
        self._announced = int(max(due.step, self.run))
        return Due(runs=self._announced - self.run + 1)

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Return whether it triggers in the run that is about to start."""
        if self._announced is not None:
            self.run, self._announced = self._announced, None
        return self._timer.should_trigger_for_step(self.run)

    def last_triggered_step(self) -> int | None:
        """Return the number of the run that triggered last, or None."""
        return self._timer.last_triggered_step()

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether the run number ``step`` triggers."""
        return self._timer.should_trigger_for_step(step)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that the run number ``step`` triggers; return seconds and runs since the last."""
        return self._timer.update_last_triggered_step(step)

    def ensure_triggered(self) -> None:
        """Note that the present run triggers, unless that was done."""
        if self._timer.last_triggered_step() != self.run:
            self._timer.update_last_triggered_step(self.run)

    def end_run(self) -> None:
        """Note that a run has ended well."""
        self.run += 1


class StepTimer:
    """Follows a trigger by the global step; has the methods of a ``RunTimer``.

    Args:
        trigger: Says when.
    """

    def __init__(self, trigger: Trigger) -> None:
        self._timer = Timer(trigger)
        self._session: RawSession | None = None
        self.run = 0

    def reset(self) -> None:
        """Start over."""
        self._timer.reset()

    def start(self, session: RawSession, last_step: int | None, steps_per_run: float = 1.0) -> None:
        """Go on in ``session``, having last triggered at the global step ``last_step``."""
        self._session = session
        if last_step is not None and last_step != self._timer.last_triggered_step():
            self._timer.update_last_triggered_step(last_step)
        self._timer.start(step_of(session))

    def announce(self) -> Due:
        """Return when it triggers next."""
        return self._timer.due()

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Return whether it triggers in the run that is about to start."""
        return self._timer.should_trigger_for_step(next_step_of(run_context))

    def last_triggered_step(self) -> int | None:
        """Return None: runs do not count."""
        return None

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether the global step ``step`` triggers."""
        return self._timer.should_trigger_for_step(step)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that the present step triggers; return seconds and steps since the last time."""
        return self._timer.update_last_triggered_step(self._step())

    def ensure_triggered(self) -> None:
        """Note that the present step triggers, unless that was done."""
        if self._timer.last_triggered_step() != self._step():
            self._timer.update_last_triggered_step(self._step())

    def end_run(self) -> None:
        """Note that a run has ended well."""
        self.run += 1

    def _step(self) -> int:
        assert self._session is not None, "it was started"
        return step_of(self._session)
