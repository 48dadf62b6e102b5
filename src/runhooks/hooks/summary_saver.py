"""``SummarySaverHook``."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph import Graph
from runhooks.graph.base import BaseGraph, GraphKeys, get_default_graph
from runhooks.hooks.base import (
    SummaryOutput,
    SummaryWriter,
    SummaryWritingHook,
    TimedHook,
    check_for_end,
    next_step_of,
    step_of,
)
from runhooks.trigger import Due, Trigger, tensorflow_timer_of


class SummarySaverHook(TimedHook, SummaryWritingHook):
    """Fetches a summary when it is due, and writes it.

    As in ``tf.compat.v1.train``. With ``Trigger(at_end=True)``, the summary is computed once more
    from the final variables.

        summary = rh.summary.scalar("loss")
        hooks = [rh.SummarySaverHook(save_steps=500, output_dir="runs/a", summary_op=summary)]

    Args:
        save_steps: Write at the first step, then every this many steps.
        save_secs: Write at the first step, then every this many seconds.
        output_dir: Where to write, without a ``summary_writer``.
        summary_writer: The writer.
        scaffold: Its ``summary_op`` is the summary.
        summary_op: A tensor that is a summary, or a list of these.
        trigger: When to write.

    Raises:
        ValueError: Unless exactly one cadence, and one of ``scaffold`` and ``summary_op`` is given.
            In ``begin``: without ``output_dir`` and ``summary_writer``, except on a TensorFlow
            graph, where nothing is then written; for a value that is not a summary. When a session
            is created: if the summary is due at the end and needs feeds or inputs.
    """

    runs_on = "chief"
    asks_on_all: ClassVar[bool] = True

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
        if scaffold is None and summary_op is None:
            raise ValueError(
                "exactly one of scaffold and summary_op must be given, got none: give a summary, "
                "such as summary_op=rh.summary.scalar('loss')"
            )
        arguments.exactly_one(scaffold=scaffold, summary_op=summary_op)
        super().__init__(tensorflow_timer_of(trigger, save_steps=save_steps, save_secs=save_secs))
        self._output = SummaryOutput(output_dir, summary_writer)
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._output_dir = output_dir
        self._request_summary = False
        self._summaries: list[Any] | None = None

    def begin(self) -> None:
        super().begin()
        summaries_of(get_default_graph(), self._summary_op)
        if not (self._output.has_place or get_default_graph().engine.may_drop_summaries):
            raise ValueError(
                "output_dir or summary_writer must be given: the directory of the session, such as "
                "its checkpoint_dir, is a good output_dir"
            )
        self._output.open(on_each_rank=self.runs_on == "all")
        self._summaries = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._start(session)

    def _start(self, session: RawSession) -> None:
        # A scaffold has its summary_op only once finalized, after begin.
        self._summaries = self._get_summary_op() or []
        if self._timer.trigger.at_end:
            check_for_end(session.graph, self._summaries)
        self._timer.start(step_of(session), session_of(session).epochs)
        self._output.start(session)

    def next_due(self) -> Due | None:
        return Due() if self._summaries == [] else self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._summaries is None:  # TensorFlow's own loop may never call after_create_session
            self._start(run_context.session)
        self._request_summary = self._timer.should_trigger_for_step(next_step_of(run_context))
        return SessionRunArgs(self._summaries) if self._request_summary else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results is None:
            return
        step = step_of(run_context.session)
        self._timer.update_last_triggered_step(step)
        self._write(run_values.results, step)

    def end(self, session: RawSession | None = None) -> None:
        if session is not None and self._summaries:
            step = step_of(session)
            # Without updating the timer: a run that resumes here keeps to its steps.
            if self._timer.should_trigger_at_end(step):
                self._write(session.run(self._summaries), step)
        self._output.flush()

    def _get_summary_op(self) -> list[Any] | None:
        """Return the summaries; subclasses override it."""
        given = self._summary_op if self._scaffold is None else self._scaffold.summary_op
        return None if given is None else _listed(given)

    def _write(self, summaries: list[Any], step: int) -> None:
        for summary in summaries:
            self._output.add_summary(summary, step)


def summaries_of(graph: BaseGraph, summary_op: Any) -> list[Any]:
    """Return the summaries that a hook was given; ``merge_all`` then leaves them out.

    ValueError if one is no summary.
    """
    found = _listed(summary_op)
    for summary in found:
        if graph.is_value(summary):
            name = graph.as_graph_element(summary).name.partition(":")[0]
            raise ValueError(
                f"summary_op must be a summary, got {name!r}: make a summary of it, such as "
                f"rh.summary.scalar({name!r}, {name!r})"
            )
    if isinstance(graph, Graph):  # in TensorFlow's programs, both write them
        others = graph.get_collection_ref(GraphKeys.SUMMARIES)
        others[:] = [it for it in others if all(it is not summary for summary in found)]
    return found


def _listed(summary_op: Any) -> list[Any]:
    if isinstance(summary_op, list | tuple):
        return list(summary_op)
    return [] if summary_op is None else [summary_op]
