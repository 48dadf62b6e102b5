"""``EvaluatingHook``: the base class of hooks that evaluate in the middle of a training."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import graph_of, session_of
from runhooks.errors import add_note
from runhooks.hooks.helpers.evaluation_metric import EvaluationMetric
from runhooks.hooks.helpers.evaluation_results import EvaluationResults
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.hooks.helpers.timed_hook import TimedHook
from runhooks.hooks.helpers.training_time import not_training
from runhooks.session.nested import LoopStoppedError
from runhooks.summary import Value
from runhooks.trigger import Due, Timer, Trigger

_log = logging.getLogger("runhooks")


class Evaluation(NamedTuple):
    """The outcome of one evaluation.

    Attributes:
        metrics: The metrics by tag, a number each.
        runs: How many runs it took.
        more: Other values to write.
    """

    metrics: Mapping[str, float]
    runs: int
    more: tuple[Value, ...] = ()


class EvaluatingHook(TimedHook):
    """Evaluates when its timer triggers, and writes, logs and keeps the metrics.

    Args:
        timer: Says when to evaluate.
        results: Keeps and writes the metrics.
        at_start: Whether to evaluate when training begins too.
    """

    #: Other hooks use the metrics of a step at that very step.
    first: ClassVar[bool] = True

    def __init__(self, timer: Timer, results: EvaluationResults, at_start: bool = False) -> None:
        super().__init__(timer)
        self._results = results
        self._at_start = at_start
        self._dropped_at: int | None = None  # the step of an evaluation that a stop has ended

    @property
    def trigger(self) -> Trigger:
        """When it evaluates."""
        return self._timer.trigger

    @property
    def evaluated_step(self) -> int | None:
        """The global step of the last evaluation in this session; None if there was none."""
        return self._results.step

    @property
    def last_metrics(self) -> Mapping[str, float]:
        """The metrics of the last evaluation in this session; empty if there was none."""
        return self._results.last

    def metric(self, name: str) -> EvaluationMetric:
        """Return one metric of it, for hooks that act on its values.

        ``stop_if_no_increase_hook`` and its like, and ``ReduceOnPlateauHook``, take it.

        Args:
            name: The tag of the metric.
        """
        arguments.given(name=name)
        arguments.instance(str, name=name)
        return EvaluationMetric(self, self.hook_name or type(self).__name__, name)

    def metrics_at(self, step: int | None) -> dict[str, float]:
        """Return the metrics of the evaluation at exactly that global step.

        Empty if there was no evaluation at that step: for ``KeepBest``, save at the steps of
        evaluations.

        Raises:
            RuntimeError: If the hook is not in a session.
        """
        return self._results.at(step)

    def metrics_by_step(self) -> dict[int, dict[str, float]]:
        """Return the metrics of all evaluations so far, by global step.

        Raises:
            RuntimeError: If the hook is not in a session.
        """
        return self._results.by_step()

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._dropped_at = None
        self._results.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step = step_of(session)
        self._timer.start(step)
        self._results.start(session)
        is_first = self._at_start and self._timer.last_triggered_step() is None
        if is_first:
            self._timer.update_last_triggered_step(step)
        if is_first or self._dropped_at == step:
            self._evaluate_in_training(session, None)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._evaluate_in_training(run_context.session, run_context.original_args)
            self._timer.update_last_triggered_step(step)

    def end(self, session: RawSession) -> None:
        # The timer is not updated: a run that resumes here evaluates as if it had not been stopped.
        if self._timer.should_trigger_at_end(step_of(session)):
            self._evaluate(session, None)

    def state_dict(self) -> Mapping[str, Any]:
        dropped = {} if self._dropped_at is None else {"dropped_at": self._dropped_at}
        metrics = {"metrics": self._results.history} if self._results.history else {}
        return {**super().state_dict(), **dropped, **metrics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict({k: v for k, v in state.items() if k == "last_triggered_step"})
        self._results.history = dict(state.get("metrics", {}))
        self._dropped_at = state.get("dropped_at")

    @abstractmethod
    def _run_evaluation(self, session: RawSession, training: SessionRunArgs | None) -> Evaluation:
        """Make the runs of one evaluation.

        Args:
            session: The session of the training.
            training: The request of the training for a run, if it is known.
        """

    def _evaluate_in_training(self, session: RawSession, training: SessionRunArgs | None) -> None:
        is_done = self._evaluate(session, training)
        self._dropped_at = None if is_done else step_of(session)

    def _evaluate(self, session: RawSession, training: SessionRunArgs | None) -> bool:
        """Evaluate now; return False if a stop has ended the evaluation."""
        raw, step, start = session_of(session), step_of(session), clock.monotonic()
        with not_training(raw), graph_of(raw.graph).preserved_objects("an evaluation"):
            try:
                found = self._run_evaluation(raw, training)
            except LoopStoppedError as stopped:
                _log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                return False
            except Exception as error:
                add_note(error, f"in the evaluation at step {step}")
                raise
        name, secs = self.hook_name or type(self).__name__, clock.monotonic() - start
        self._results.record(name, step, found.metrics, found.runs, secs, found.more)
        return True
