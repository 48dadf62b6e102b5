"""When ``LoggingTensorHook`` logs: by runs, by global steps, or at the end alone."""

from __future__ import annotations

import math

from runhooks.contract import RawSession, SessionRunContext
from runhooks.hooks.helpers.session import next_step_of, step_of, step_or_none
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
