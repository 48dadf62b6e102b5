"""``StepCounterHook``: measures steps per second."""

from __future__ import annotations

import math
import os

from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph.base import StepPart
from runhooks.hooks.helpers.session import log_of, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.helpers.tensorflow_hook import StepReadingHook, SummaryWritingHook
from runhooks.hooks.helpers.training_time import EVERY_N_STEPS, Windows
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Trigger, tensorflow_timer_of


class StepCounterHook(StepReadingHook, SummaryWritingHook):
    """Logs and writes steps per second, under the tag ``<name of the global step>/sec``.

    As in ``tf.compat.v1.train``. The first step, which compiles, does not count, and neither does
    time spent in evaluations and synchronous saving.

        hooks = [rh.StepCounterHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Steps from one measurement to the next.
        every_n_secs: Seconds from one measurement to the next.
        output_dir: The directory to write to if ``summary_writer`` is None. With neither, the hook
            only logs.
        summary_writer: The writer to write with.
        trigger: Says when to measure.

    Raises:
        ValueError: If more than one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
            given.
    """

    runs_on = "chief"

    _last_global_step: int | None = None

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
            tensorflow_timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        )
        self._timer = self._windows.timer
        # After that many runs the timer is due, or the loop does not increase the step.
        self._most_runs = self._windows.every_steps or math.inf
        self._output = SummaryOutput(output_dir, summary_writer)
        self._output_dir = output_dir
        self._summary_tag = ""
        self._warned = False

    def begin(self) -> None:
        super().begin()
        self._summary_tag = f"{self._global_step_tensor.op.name}/sec"
        self._output.open(on_each_rank=self.runs_on == "all")

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
        elif step_of(session) == self._windows.opened_at and not _is_part(run_context):
            self._warn(session)

    def end(self, session: RawSession) -> None:
        if self._windows.is_due_at_end(session):
            self._record(session)
        self._output.flush()

    def _record(self, session: RawSession) -> None:
        window = self._windows.turn(session)
        if window is not None:
            self._log = log_of(session)
            self._log_and_record(window.steps, window.training_secs, step_of(session))

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        """Log and write the speed; subclasses override it, as in TensorFlow.

        Args:
            elapsed_steps: Steps since the last time.
            elapsed_time: Seconds of training since the last time.
            global_step: The global step.
        """
        steps_per_sec = elapsed_steps / elapsed_time if elapsed_time > 0 else math.inf
        value = scalar_value(self._summary_tag, steps_per_sec)
        self._output.add_summary(Summary([value]), global_step)
        self._log.info("%s: %g", self._summary_tag, steps_per_sec)

    def _warn(self, session: RawSession) -> None:
        if not self._warned:
            log_of(session).warning(
                "the global step has not been increased since it was last looked at: it has stayed "
                "at %d; put global_step.assign_add(1) into what the loop runs",
                step_of(session),
            )
        self._warned = True


def _is_part(run_context: SessionRunContext) -> bool:
    """Return whether the run was a part of a step, such as one that accumulates gradients."""
    asked = run_context.original_args
    part = session_of(run_context.session).step_part(asked.fetches, asked.feed_dict or ())
    return part is StepPart.PART
