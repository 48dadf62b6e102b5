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
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.parts import CAPTURE, GRADIENT, OUTPUT, READ, STEP
from runhooks.graph.tensor import Tensor
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
    computed at the end and needs feeds or inputs; in ``begin``, for a value of ``rh.torch`` that is
    no summary.
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
        self._summaries: list[Any] | None = None  # not known before there is a session

    def begin(self) -> None:
        required_global_step(self)
        for summary in _listed(self._summary_op):
            _check_summary(get_default_graph(), summary)
        self._timer.reset()
        self._output.open()
        self._summaries = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._start(session)

    def _start(self, session: RawSession) -> None:
        # A scaffold has its summary_op once it is finalized, which is after begin.
        op = self._scaffold.summary_op if self._scaffold is not None else self._summary_op
        self._summaries = _listed(op)
        if self._timer.trigger.at_end:
            check_for_end(session.graph, self._summaries)
        self._timer.start(step_of(session))
        self._output.start(session)

    def next_due(self) -> Due | None:
        return Due() if self._summaries == [] else self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._summaries is None:  # a loop of the caller's own told of no session
            self._start(run_context.session)
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


def _listed(summary_op: Any) -> list[Any]:
    if isinstance(summary_op, list | tuple):
        return list(summary_op)
    return [] if summary_op is None else [summary_op]


def _check_summary(graph: Any, summary: Any) -> None:
    if not isinstance(graph, Graph):
        return
    element = graph.as_graph_element(summary)
    op = element.op if isinstance(element, Tensor) else element
    if op.type in (STEP, OUTPUT, CAPTURE, GRADIENT, READ):
        raise ValueError(
            f"summary_op must be a summary, got {op.name!r}: make one of it, such as "
            f"rh.summary.scalar({op.name!r}, {op.name!r})"
        )
