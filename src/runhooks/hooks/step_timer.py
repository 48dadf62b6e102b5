"""``StepTimer``: follows a trigger by the global step, and is asked as a ``RunTimer`` is."""

from __future__ import annotations

from runhooks.contract import RawSession, SessionRunContext
from runhooks.hooks.global_step import next_step_of, step_of
from runhooks.trigger import Due, Timer, Trigger


class StepTimer:
    """Triggers in the runs that lead to the steps, or begin at the times, of a trigger."""

    def __init__(self, trigger: Trigger) -> None:
        self._timer = Timer(trigger)
        self._session: RawSession | None = None

    def reset(self) -> None:
        """Begin anew."""
        self._timer.reset()

    def start(self, session: RawSession, last_step: int | None, steps_per_run: float = 1.0) -> None:
        """Go on in ``session``, after what was triggered at the global step ``last_step``."""
        self._session = session
        if last_step is not None and last_step != self._timer.last_triggered_step():
            self._timer.update_last_triggered_step(last_step)
        self._timer.start(step_of(session))

    def announce(self) -> Due:
        """When it triggers next."""
        return self._timer.due()

    def should_trigger(self, run_context: SessionRunContext) -> bool:
        """Whether it triggers in the run that begins."""
        return self._timer.should_trigger_for_step(next_step_of(run_context))

    def trigger(self) -> tuple[float | None, int | None]:
        """Note that it has triggered; return the seconds and the steps since the time before."""
        assert self._session is not None, "it was started"
        return self._timer.update_last_triggered_step(step_of(self._session))

    def end_run(self) -> None:
        """Note that a run has ended well: nothing, the global step counts."""
