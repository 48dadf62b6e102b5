"""``RunTimer``: triggers by runs of a session, or by seconds, for a hook that may sleep."""

from __future__ import annotations

import math

from runhooks.contract import RawSession, SessionRunContext
from runhooks.hooks.global_step import step_or_none
from runhooks.trigger import Due, SecondOrStepTimer


class RunTimer:
    """Triggers in the first run, then once every n runs or every n seconds.

    It is asked in every run, or only in those that ``announce`` names: the runs in between are
    counted as they are slept through. Raises ValueError unless exactly one of ``every_runs`` and
    ``every_secs`` (seconds) is given, above zero.
    """

    def __init__(self, every_runs: int | None = None, every_secs: float | None = None) -> None:
        self._timer = SecondOrStepTimer(every_secs=every_secs, every_steps=every_runs)
        self._by_runs = every_runs is not None
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next run triggers."""
        self._timer.reset()
        self._run = 0  # the number of the next run
        self._announced: int | None = None

    def start(self, session: RawSession, last_step: int | None, steps_per_run: float = 1.0) -> None:
        """Go on in ``session``, after what was triggered at the global step ``last_step``."""
        if last_step is None or (step := step_or_none(session)) is None:
            return
        if step < last_step:
            self.reset()
        elif self._by_runs:
            # Nobody counted the runs slept through before the checkpoint.
            self.resume(round((step - last_step) / steps_per_run))

    def resume(self, runs_since: int) -> None:
        """Go on as if it had triggered, and then ``runs_since`` runs had been made."""
        last_run = self._timer.last_triggered_step()
        if last_run is None:
            last_run = 0
            self._timer.update_last_triggered_step(last_run)
        self._run = last_run + 1 + runs_since
        self._announced = None

    def announce(self) -> Due:
        """When it triggers next; the runs before that one are slept through, and not asked in."""
        due = self._timer.due()
        if due.step == math.inf:
            return due
        self._announced = int(max(due.step, self._run))
        return Due(runs=self._announced - self._run + 1)

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Whether it triggers in the run that begins."""
        if self._announced is not None:
            self._run, self._announced = self._announced, None
        return self._timer.should_trigger_for_step(self._run)

    def trigger(self) -> tuple[float | None, int | None]:
        """Note that it has triggered; return the seconds and the runs since the time before."""
        return self._timer.update_last_triggered_step(self._run)

    def end_run(self) -> None:
        """Note that a run has ended well."""
        self._run += 1
