"""``HookTimesHook``: measures what each hook costs."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.helpers.training_time import EVERY_N_STEPS, Windows
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Trigger, timer_of

_log = logging.getLogger("runhooks")


class HookTime(NamedTuple):
    """The cost of one hook.

    Attributes:
        us_per_step: Microseconds per step.
        percent: Percent of the total time.
    """

    us_per_step: float
    percent: float


class HookTimesHook(SessionRunHook):
    """Measures ``before_run`` and ``after_run`` of every hook in the session, including itself.

    When it is due, it logs a table of the times since the last one, and writes a scalar
    ``hook_times/<name of the hook>_us_per_step`` for each hook that was called. The first run does
    not count. Computing what a hook fetches counts as the run's time, not the hook's.

        hooks = [rh.HookTimesHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Log a table at the multiples of this number.
        every_n_secs: Seconds per table.
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
        trigger: Says when a table is due.

    Attributes:
        times: The last table: the cost of each hook that was called, by the hook's name, the most
            expensive first.

    Raises:
        ValueError: If more than one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
            given.
    """

    runs_on = "chief"

    def __init__(
        self,
        every_n_steps: int | None = EVERY_N_STEPS,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        self._windows = Windows(
            timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        )
        self._output = SummaryOutput(output_dir, summary_writer)
        self._secs: dict[str, float] = {}
        self.hook_secs = self._secs
        self.times: dict[str, HookTime] = {}

    def begin(self) -> None:
        required_global_step(self)
        self.times = {}
        self._output.open(on_each_rank=self.runs_on == "all")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._windows.start(session)
        self._output.start(session)

    def next_due(self) -> Due | None:
        return self._windows.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._windows.is_due(run_context.session):
            self._measure(run_context.session)

    def end(self, session: RawSession) -> None:
        if self._windows.is_due_at_end(session):
            self._measure(session)
        self._output.flush()

    def _measure(self, session: RawSession) -> None:
        window = self._windows.turn(session)
        secs = sorted(self._secs.items(), key=lambda item: -item[1])
        self._secs.clear()
        if window is None:
            return
        self.times = {
            name: HookTime(1e6 * taken / max(window.steps, 1), 100 * taken / max(window.secs, 1e-9))
            for name, taken in secs
        }
        self._record(step_of(session))

    def _record(self, step: int) -> None:
        values = [
            scalar_value(f"hook_times/{name}_us_per_step", time.us_per_step)
            for name, time in self.times.items()
        ]
        self._output.add_summary(Summary(values), step)
        width = max(map(len, self.times), default=0)
        rows = [
            f"  {name:{width}}  {time.us_per_step:10.1f} us/step  {time.percent:5.1f} %"
            for name, time in self.times.items()
        ]
        _log.info("%s", "\n".join([f"the cost of each hook, at step {step}:", *rows]))
