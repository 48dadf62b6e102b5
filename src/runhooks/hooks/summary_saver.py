"""``SummarySaverHook``: writes summaries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.at_end import check_for_end
from runhooks.hooks.global_step import next_step_of, required_global_step, step_of
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.trigger import Due, Trigger, timer_of


class SummarySaverHook(SessionRunHook):
    """Fetches a summary on its due steps, the first step among them, and writes it.

    ``save_steps``, ``save_secs`` or ``trigger``: how often. ``output_dir``: the directory to write
    to if no ``summary_writer`` is given. ``summary_op``: a tensor that is a summary, or a list of
    these; or that of ``scaffold``. As in ``tf.compat.v1.train``. Between its steps it asks for
    nothing, so that nothing is computed. A resumed run goes on at the steps of one that was never
    stopped. A trigger ``at_end`` computes the summary once more, of the variables as they are then.

    Raises ValueError unless exactly one of ``save_steps``, ``save_secs`` and ``trigger``, and of
    ``scaffold`` and ``summary_op``, is given; and when a session is made, if the summary is to be
    computed at the end and needs feeds or inputs.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        scaffold: Any = None,
        summary_op: Any = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.exactly_one(scaffold=scaffold, summary_op=summary_op)
        self._timer = timer_of(trigger, save_steps=save_steps, save_secs=save_secs)
        self._output = SummaryOutput(output_dir, summary_writer)
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._summaries: list[Any] = []

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        # A scaffold has its summary_op once it is finalized, which is after begin.
        op = self._scaffold.summary_op if self._scaffold is not None else self._summary_op
        self._summaries = list(op) if isinstance(op, list | tuple) else [] if op is None else [op]
        if self._timer.trigger.at_end:
            check_for_end(session.graph, self._summaries)
        self._timer.start(step_of(session))
        self._output.start(session)

    def next_due(self) -> Due | None:
        return self._timer.due() if self._summaries else Due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._timer.should_trigger_for_step(next_step_of(run_context)):
            return SessionRunArgs(self._summaries)
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results is None:  # nothing was asked for in this run
            return
        step = step_of(run_context.session)
        self._timer.update_last_triggered_step(step)
        self._write(run_values.results, step)

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        if self._summaries and self._timer.should_trigger_at_end(step):
            # The timer is not told: a run that goes on from here keeps to its steps.
            self._write(session.run(self._summaries), step)
        self._output.flush()

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)

    def _write(self, summaries: list[Any], step: int) -> None:
        for summary in summaries:
            self._output.add_summary(summary, step)
