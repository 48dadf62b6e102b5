"""``Windows``: what a session does from one due step of a hook to the next, for measuring it."""

from __future__ import annotations

from typing import NamedTuple

from runhooks import clock
from runhooks.contract import RawSession
from runhooks.hooks.global_step import step_of
from runhooks.hooks.time_apart import time_apart
from runhooks.trigger import Due, Timer, Trigger, timer_of

#: How often a hook measures if nothing else is said; it gives way to a trigger.
EVERY_N_STEPS = 100


class Window(NamedTuple):
    """``steps`` made in ``secs`` seconds, of which ``training_secs`` were not spent apart."""

    steps: int
    secs: float
    training_secs: float

    @property
    def steps_per_sec(self) -> float:
        """Steps in a second of training."""
        return self.per_sec(self.steps)

    def per_sec(self, amount: float) -> float:
        """How much of ``amount``, made in this window, was made in a second of training."""
        return amount / self.training_secs if self.training_secs > 0 else float("inf")


class Windows:
    """The windows of one hook in one session: the first opens after the first run.

    That run, in which things are compiled, is in none. Raises ValueError unless exactly one of
    ``every_n_steps``, ``every_n_secs`` and ``trigger`` is given.
    """

    def __init__(
        self, every_n_steps: int | None, every_n_secs: float | None, trigger: Trigger | None
    ) -> None:
        if trigger is not None and every_n_steps == EVERY_N_STEPS:
            every_n_steps = None
        self._timer: Timer = timer_of(
            trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs
        )
        self._opened: tuple[int, float, float] | None = None  # step, time, time apart

    @property
    def every_steps(self) -> float | None:
        """In how many steps a window ends; None if it does not go by them."""
        return self._timer.trigger.every_steps

    @property
    def opened_at(self) -> int | None:
        """The step at which the window that is open was opened; None if none is."""
        return None if self._opened is None else self._opened[0]

    def start(self, session: RawSession) -> None:
        """Begin anew; for a hook's ``after_create_session``."""
        self._opened = None
        self._timer.reset()
        self._timer.start(step_of(session))

    def due(self) -> Due:
        """When a window is to be opened or closed next."""
        return Due(runs=1) if self._opened is None else self._timer.due()

    def is_due(self, session: RawSession) -> bool:
        """Whether a window is to be opened or closed now; for a hook's ``after_run``."""
        return self._opened is None or self._timer.should_trigger_for_step(step_of(session))

    def is_due_at_end(self, session: RawSession) -> bool:
        """Whether to close one that is open now; for a hook's ``end``."""
        return self._timer.should_trigger_at_end(step_of(session))

    def turn(self, session: RawSession) -> Window | None:
        """Close the one that is open, if any, and open the next now."""
        step, now, apart = step_of(session), clock.monotonic(), time_apart(session)
        closed = None
        if self._opened is not None:
            steps, secs = step - self._opened[0], now - self._opened[1]
            closed = Window(steps, secs, secs - (apart - self._opened[2]))
        self._opened = step, now, apart
        self._timer.update_last_triggered_step(step)
        return closed
