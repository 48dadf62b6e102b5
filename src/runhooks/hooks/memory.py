"""``MemoryHook``: how much device memory a training takes."""

from __future__ import annotations

import logging
import os

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.helpers.timed_hook import TimedHook
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import DefaultSteps, Due, Trigger, timer_of

_log = logging.getLogger("runhooks")

_EVERY_N_STEPS = DefaultSteps(100)


class MemoryHook(TimedHook):
    """Writes the memory statistics of the devices: ``memory/cuda:0/allocated_bytes`` and others.

    It does not wait for a device. If no device has statistics, as on a CPU, the log says so once,
    and the hook is not called again.

        hooks = [rh.MemoryHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Write at the multiples of this number.
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
        trigger: Says when to write.

    Raises:
        ValueError: If both ``every_n_steps`` and ``trigger`` are given, or neither ``output_dir``
            nor ``summary_writer`` is.
    """

    runs_on = "chief"

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.at_least_one(output_dir=output_dir, summary_writer=summary_writer)
        super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
        self._output = SummaryOutput(output_dir, summary_writer)
        self._has_statistics = False

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._output.open(on_each_rank=self.runs_on == "all")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session))
        self._output.start(session)
        self._has_statistics = bool(session_of(session).engine.memory())
        if not self._has_statistics:
            _log.info("MemoryHook writes nothing: no device of this session has memory statistics")

    def next_due(self) -> Due | None:
        return self._timer.due() if self._has_statistics else Due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._has_statistics and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._write(run_context.session, step)

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        if self._has_statistics and self._timer.should_trigger_at_end(step):
            self._write(session, step)
        self._output.flush()

    def _write(self, session: RawSession, step: int) -> None:
        numbers = session_of(session).engine.memory().items()
        values = [scalar_value(f"memory/{name}", number) for name, number in numbers]
        self._output.add_summary(Summary(values), step)
