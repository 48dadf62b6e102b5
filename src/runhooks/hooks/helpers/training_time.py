"""The time that a session spends on training, measured in windows of steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from runhooks import clock
from runhooks.contract import RawSession, SessionRunContext, SessionRunValues, StopSignal
from runhooks.engines.foreign import session_of
from runhooks.hooks.helpers.base import SummaryWriter, WritingHook, step_of
from runhooks.trigger import DefaultSteps, Due, Timer, Trigger, timer_of

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


class MeasuringHook(WritingHook):
    """The base of hooks that write figures of windows of a training, from one due step to the next.

    The first window opens after the first run, in which things are compiled.

    Args:
        every_n_steps: Steps per window.
        every_n_secs: Seconds per window.
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
        trigger: Says when a window ends.

    Raises:
        ValueError: Unless exactly one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
            given.
    """

    #: Makes the timer of the arguments.
    make_timer: ClassVar[Callable[..., Timer]] = staticmethod(timer_of)

    def __init__(
        self,
        every_n_steps: int | None = EVERY_N_STEPS,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        super().__init__(output_dir, summary_writer)
        cadence = {"every_n_steps": every_n_steps, "every_n_secs": every_n_secs}
        self._timer = self.make_timer(trigger, **cadence)
        self._opened: tuple[int, float, float] | None = None  # step, time, non-training seconds

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._opened = None
        self._timer.reset()
        self._timer.start(step_of(session))
        super().after_create_session(session, coord)

    def next_due(self) -> Due | None:
        return Due(runs=1) if self._opened is None else self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if self._opened is None or self._timer.should_trigger_for_step(step_of(session)):
            self._measure(session)

    def end(self, session: RawSession) -> None:
        if self._timer.should_trigger_at_end(step_of(session)):
            self._measure(session)
        super().end(session)

    def _measure(self, session: RawSession) -> None:
        """Close the current window, if there is one, and open the next."""
        step, now = step_of(session), clock.monotonic()
        excluded = session_of(session).non_training_secs
        opened, self._opened = self._opened, (step, now, excluded)
        self._timer.update_last_triggered_step(step)
        if opened is not None:
            secs = now - opened[1]
            self._record(session, Window(step - opened[0], secs, secs - (excluded - opened[2])))

    def _record(self, session: RawSession, window: Window) -> None:
        """Write what there is to say of ``window``, which has just ended."""
        raise NotImplementedError
