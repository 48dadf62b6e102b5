"""The time that a session spends on training, measured in windows of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from runhooks import clock
from runhooks.contexts import contextmanager
from runhooks.contract import RawSession
from runhooks.engines.foreign import session_of
from runhooks.hooks.helpers.base import step_of
from runhooks.trigger import DefaultSteps, Due, Timer

#: How often a hook measures unless the caller says otherwise.
EVERY_N_STEPS = DefaultSteps(100)


@contextmanager
def not_training(session: RawSession | None) -> Iterator[None]:
    """Count the ``with`` block as time that ``session`` does not spend on training.

    Nested blocks are counted once. The time that inputs take inside the block is not counted as
    waiting for the input of training.
    """
    if session is None:
        yield
        return
    raw, start = session_of(session), clock.monotonic()
    before, input_secs = raw.non_training_secs, raw.input_secs
    try:
        yield
    finally:
        raw.non_training_secs = before + clock.monotonic() - start
        raw.input_secs = input_secs


class Window(NamedTuple):
    """A stretch of a training.

    Attributes:
        steps: The steps made in it.
        secs: The seconds it lasted.
        training_secs: The seconds of these that were spent on training.
    """

    steps: int
    secs: float
    training_secs: float

    @property
    def steps_per_sec(self) -> float:
        """Steps per second of training."""
        return self.per_sec(self.steps)

    def per_sec(self, amount: float) -> float:
        """Return ``amount``, counted over this window, per second of training."""
        return amount / self.training_secs if self.training_secs > 0 else float("inf")


class Windows:
    """The windows that a hook measures in one session, from one due step to the next.

    The first window opens after the first run, in which things are compiled.

    Args:
        timer: Says when a window is closed and the next is opened.
    """

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._opened: tuple[int, float, float] | None = None  # step, time, non-training seconds

    @property
    def every_steps(self) -> float | None:
        """Steps per window; None if windows are not counted in steps."""
        return self.timer.trigger.every_steps

    @property
    def opened_at(self) -> int | None:
        """The step at which the current window was opened; None if there is none."""
        return None if self._opened is None else self._opened[0]

    def start(self, session: RawSession) -> None:
        """Start over; for a hook's ``after_create_session``."""
        self._opened = None
        self.timer.reset()
        self.timer.start(step_of(session))

    def due(self) -> Due:
        """Return when a window is to be opened or closed next."""
        return Due(runs=1) if self._opened is None else self.timer.due()

    def is_due(self, session: RawSession) -> bool:
        """Return whether to open or close a window now; for a hook's ``after_run``."""
        return self._opened is None or self.timer.should_trigger_for_step(step_of(session))

    def is_due_at_end(self, session: RawSession) -> bool:
        """Return whether to close the current window; for a hook's ``end``."""
        return self.timer.should_trigger_at_end(step_of(session))

    def turn(self, session: RawSession) -> Window | None:
        """Close the current window, if there is one, and open the next."""
        step, now = step_of(session), clock.monotonic()
        excluded = session_of(session).non_training_secs
        closed = None
        if self._opened is not None:
            steps, secs = step - self._opened[0], now - self._opened[1]
            closed = Window(steps, secs, secs - (excluded - self._opened[2]))
        self._opened = step, now, excluded
        self.timer.update_last_triggered_step(step)
        return closed
