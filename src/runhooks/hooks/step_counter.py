"""``StepCounterHook``: how many steps are made in a second."""

from __future__ import annotations

import logging
import math
import os

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, SecondOrStepTimer

_log = logging.getLogger("runhooks")


class StepCounterHook(SessionRunHook):
    """Logs and writes steps per second, under the tag ``<name of the global step>/sec``.

    ``every_n_steps``, or ``every_n_secs`` with ``every_n_steps=None``: how often. ``output_dir``:
    the directory to write to if no ``summary_writer`` is given; with neither it is logged only.
    As in ``tf.compat.v1.train``. The first step, in which things are compiled, is not counted.

    Raises ValueError unless exactly one of ``every_n_steps`` and ``every_n_secs`` is given.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        arguments.exactly_one(every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        arguments.positive(every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        # At one step a run these many runs bring the timer to its step; if not, it is looked into.
        self._most_runs = math.inf if every_n_steps is None else every_n_steps
        self._output = SummaryOutput(output_dir, summary_writer)
        self._tag = ""
        self._warned = False

    def begin(self) -> None:
        self._tag = f"{required_global_step(self).op.name}/sec"
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.reset()
        self._warned = False
        self._output.start(session)

    def next_due(self) -> Due | None:
        return self._timer.due()._replace(runs=self._most_runs)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            secs, steps = self._timer.update_last_triggered_step(step)
            if secs is not None and steps is not None:
                self._record(steps / secs if secs > 0 else math.inf, step)
        elif step == self._timer.last_triggered_step():
            self._warn(step)

    def end(self, session: RawSession) -> None:
        self._output.flush()

    def _record(self, steps_per_sec: float, step: int) -> None:
        self._output.add_summary(Summary([scalar_value(self._tag, steps_per_sec)]), step)
        _log.info("%s: %g", self._tag, steps_per_sec)

    def _warn(self, step: int) -> None:
        if not self._warned:
            _log.warning(
                "the global step has stayed at %d since it was last looked at: put "
                "global_step.assign_add(1) into what the loop runs",
                step,
            )
        self._warned = True
