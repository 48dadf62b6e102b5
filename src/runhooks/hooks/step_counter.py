"""``StepCounterHook``: how many steps are made in a second."""

from __future__ import annotations

import math
import os

from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.log import log_of
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.windows import EVERY_N_STEPS, Windows
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Trigger


class StepCounterHook(SessionRunHook):
    """Logs and writes steps per second, under the tag ``<name of the global step>/sec``.

    ``every_n_steps``, or ``every_n_secs`` with ``every_n_steps=None``, or ``trigger``, to which
    the default gives way: how often. ``output_dir``: the directory to write to if no
    ``summary_writer`` is given; with neither it is logged only. As in ``tf.compat.v1.train``. The
    first step, in which things are compiled, is not counted, nor is time spent on evaluations and
    synchronous saving.

    Raises ValueError unless exactly one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
    given.
    """

    def __init__(
        self,
        every_n_steps: int | None = EVERY_N_STEPS,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        self._windows = Windows(every_n_steps, every_n_secs, trigger)
        # At one step a run these many runs bring the timer to its step; if not, it is looked into.
        self._most_runs = self._windows.every_steps or math.inf
        self._output = SummaryOutput(output_dir, summary_writer)
        self._tag = ""
        self._warned = False

    def begin(self) -> None:
        self._tag = f"{required_global_step(self).op.name}/sec"
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._windows.start(session)
        self._warned = False
        self._output.start(session)

    def next_due(self) -> Due | None:
        due = self._windows.due()
        return due._replace(runs=min(due.runs, self._most_runs))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if self._windows.is_due(session):
            self._record(session)
        elif step_of(session) == self._windows.opened_at:
            self._warn(session)

    def end(self, session: RawSession) -> None:
        if self._windows.is_due_at_end(session):
            self._record(session)
        self._output.flush()

    def _record(self, session: RawSession) -> None:
        window = self._windows.turn(session)
        if window is not None:
            value = scalar_value(self._tag, window.steps_per_sec)
            self._output.add_summary(Summary([value]), step_of(session))
            log_of(session).info("%s: %g", self._tag, window.steps_per_sec)

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Nothing: for loops of TensorFlow. The step after each run is known here."""

    def _warn(self, session: RawSession) -> None:
        if not self._warned:
            log_of(session).warning(
                "the global step has not been increased since it was last looked at: it has stayed "
                "at %d; put global_step.assign_add(1) into what the loop runs",
                step_of(session),
            )
        self._warned = True
