"""Evaluations in the middle of a training: their metrics, results, and the hooks that make them."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import numpy as np

from runhooks import arguments, clock
from runhooks.arrays import to_numpy
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import graph_of, session_of
from runhooks.errors import DataLossError, add_note
from runhooks.events import Event, SessionLog, SessionStatus, read_records
from runhooks.events.place import place
from runhooks.events.reading.blocks import open_to_scan
from runhooks.events.reading.find import find_files
from runhooks.graph import Tensor
from runhooks.graph.base import Log
from runhooks.hooks.helpers.base import (
    SummaryOutput,
    SummaryWriter,
    TimedHook,
    log_of,
    next_step_of,
    step_of,
)
from runhooks.hooks.helpers.named_tensors import NamedTensors
from runhooks.hooks.helpers.training_time import not_training
from runhooks.near_names import suggestion
from runhooks.session.nested import LoopStoppedError
from runhooks.stores.path import AnyPath, path_of
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Timer, Trigger, timer_of


class EvaluationMetric:
    """A metric of an evaluating hook of the same loop, as ``hook.metric(name)`` returns it.

    Args:
        evaluation: The hook that evaluates.
        place: Its name, for messages.
        name: The tag of the metric.
    """

    def __init__(self, evaluation: EvaluatingHook, place: str, name: str) -> None:
        self.evaluation = evaluation
        self.place = place
        self.name = name

    def __repr__(self) -> str:
        return f"<EvaluationMetric {self.name!r} of {self.place}>"

    def by_step(self) -> dict[int, float]:
        """Return its values so far by global step, in the order of steps."""
        found = self.evaluation.metrics_by_step()
        return {step: it[self.name] for step, it in found.items() if self.name in it}

    def last(self) -> float:
        """Return the value that the last evaluation has found.

        Raises:
            ValueError: If it has found only other metrics.
        """
        found = self.evaluation.last_metrics
        if self.name not in found:
            raise ValueError(
                f"there is no metric {self.name!r} in {self.place}{suggestion(self.name, found)}: "
                f"there are {sorted(found)}"
            )
        return found[self.name]


class EvaluationTimer(Timer):
    """Triggers once after each evaluation of a hook of the same loop, at the step it has evaluated.

    Args:
        evaluation: The hook. It is called before the one that has the timer, as its ``first`` says;
            in TensorFlow's own sessions it may come after that, which then acts one run later.
    """

    def __init__(self, evaluation: EvaluatingHook) -> None:
        super().__init__(evaluation.trigger)
        self._evaluation = evaluation
        self._seen: int | None = None  # the evaluation that was looked at last

    def should_trigger_for_step(self, step: int) -> bool:
        return self._evaluation.evaluated_step not in (None, self._seen)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        self._seen = self._evaluation.evaluated_step
        return super().update_last_triggered_step(step)

    def due(self) -> Due:
        return self._evaluation.next_due() or Due(runs=1)


_log = logging.getLogger("runhooks")


class EvalMetrics:
    """The scalars of all event files in ``eval_dir``, which need not exist yet."""

    def __init__(self, eval_dir: str | os.PathLike[str]) -> None:
        self._dir = path_of(place(output_dir=eval_dir))
        self._read_to: dict[AnyPath, int | None] = {}  # None: damaged from there on
        self._by_step: dict[int, dict[str, float]] = {}

    def read(self) -> dict[int, dict[str, float]]:
        """Return the scalars by tag, by step, in the order of steps; reads only what is new.

        The last value counts where a tag was written several times at a step. Values of steps that
        a later session made again do not count. A damaged file is read up to the damage, with a
        warning.
        """
        for path in find_files(self._dir):
            with suppress(FileNotFoundError):  # there is none yet, or somebody has just removed it
                self._read_on(path)
        return dict(sorted(self._by_step.items()))

    def _read_on(self, path: AnyPath) -> None:
        start = self._read_to.get(path, 0)
        if start is None:
            return
        with open_to_scan(path) as file:
            file.seek(start)
            try:
                for record in read_records(file, str(path)):
                    self._take(Event.FromString(record))
                    self._read_to[path] = file.tell()
            except (DataLossError, ValueError) as error:
                self._read_to[path] = None
                _log.warning("the rest of %s is not read: %s", path, error)

    def _take(self, event: Event) -> None:
        if isinstance(event.session_log, bytes):
            if SessionLog.FromString(event.session_log).status == SessionStatus.START:
                for step in [step for step in self._by_step if step >= event.step]:
                    del self._by_step[step]
        elif isinstance(event.summary, bytes):
            values = {value.tag: value.data for value in Summary.FromString(event.summary)}
            scalars = {tag: data for tag, data in values.items() if isinstance(data, float)}
            if scalars:
                self._by_step.setdefault(event.step, {}).update(scalars)


class Means:
    """The mean of each metric over the runs of an evaluation, weighted if runs have a weight.

    A value is read when the next one arrives: the device computes that one meanwhile.

    Args:
        labels: The names of the metrics.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._sums = dict.fromkeys(labels, 0.0)
        self._weight = 0.0
        self._unread: tuple[Mapping[str, Any], Any] | None = None

    def add(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Add the values of one run, a single number each.

        Raises:
            ValueError, TypeError: If a value is not a single number.
        """
        self._read()
        self._unread = values, weight

    def means(self) -> dict[str, float]:
        """Return the means by label.

        Raises:
            ValueError: If all weights were 0.
        """
        self._read()
        if not self._weight:
            raise ValueError("weight was 0 in all runs: there is nothing to take the mean of")
        return {label: total / self._weight for label, total in self._sums.items()}

    def _read(self) -> None:
        if self._unread is None:
            return
        (values, given), self._unread = self._unread, None
        weight = number("weight", given)
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight!r}")
        if weight:  # the mean of a batch without examples is NaN
            self._weight += weight
            for label in self._sums:
                self._sums[label] += weight * number(label, values[label])


def number(label: str, value: Any) -> float:
    """Return ``value`` as a float; raise ValueError or TypeError if it is not a single number."""
    array = np.asarray(to_numpy(value))  # NumPy cannot read a bfloat16 of torch
    if array.size != 1:
        raise ValueError(
            f"{label!r} must be a single number in each run of an evaluation, got an array of "
            f"shape {array.shape}"
        )
    try:
        return float(array.reshape(()))
    except TypeError:
        raise TypeError(f"{label!r} must be a real number, got {value!r}") from None


class EvaluationResults:
    """Writes and logs the metrics of one hook's evaluations, and keeps them by step.

    Those that are written to a directory are read from its files, so that a resumed run has them
    too. The others are kept in ``history``, which is for the hook's state.

    Args:
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output = SummaryOutput(output_dir, summary_writer)
        written = summary_writer is None and output_dir is not None
        self._files = EvalMetrics(output_dir) if written and output_dir else None
        #: The global step of the last evaluation since the session started; None: there was none.
        self.step: int | None = None
        #: The metrics of that evaluation by tag.
        self.last: dict[str, float] = {}
        self._asked_for = False  # whether somebody asked for the metrics of exactly that step
        self._warned = False
        #: The metrics by tag, by step, unless they are in files.
        self.history: dict[int, dict[str, float]] = {}
        self._is_open = False
        self._log: Log = _log  # where the hooks of the session log

    def open(self) -> None:
        """Get the writer; for a hook's ``begin``."""
        self._output.open()
        self.history = {}
        self._is_open = True

    def _check_open(self) -> None:
        """Raise RuntimeError if the hook has never begun, and so will never evaluate."""
        if not self._is_open:
            raise RuntimeError(
                "the metrics of an evaluation hook were asked for, but no session has the hook: "
                "add it to the hooks of the session"
            )

    def start(self, session: RawSession) -> None:
        """Mark where a session starts; for a hook's ``after_create_session``."""
        self.step, self.last, last = None, {}, step_of(session)
        self._log = log_of(session)
        self.history = {step: it for step, it in self.history.items() if step <= last}
        self._output.start(session)
        self._output.flush()  # readers of the files drop the steps that are made again

    def record(
        self,
        name: str,
        step: int,
        metrics: Mapping[str, float],
        runs: int,
        secs: float,
    ) -> None:
        """Write and log the metrics of an evaluation.

        Args:
            name: The name of the hook.
            step: The global step that was evaluated.
            metrics: The metrics by tag.
            runs: How many runs the evaluation took.
            secs: How many seconds it took.
        """
        self.step, self.last, self._asked_for = step, dict(metrics), False
        if self._files is None:
            self.history[step] = self.last
        values = [scalar_value(label, value) for label, value in metrics.items()]
        self._output.add_summary(Summary(values), step)
        self._output.flush()
        line = ", ".join(f"{label} = {value:.6g}" for label, value in metrics.items())
        self._log.info("%s at step %d: %s (%d runs, %.3f sec)", name, step, line, runs, secs)

    def at(self, step: int | None) -> dict[str, float]:
        """Return the metrics by tag if they are those of exactly ``step``, else an empty dict.

        Raises:
            RuntimeError: If the hook has never begun.
        """
        self._check_open()
        if step == self.step:
            self._asked_for = True
            return dict(self.last)
        if step is not None and self.step is not None and step > self.step:
            self._warn_of_unused(step, self.step)
        return {}

    def _warn_of_unused(self, step: int, evaluated: int) -> None:
        """Warn, once, that a checkpoint of ``step`` has no metrics, and those known are in none."""
        if self._asked_for or self._warned:
            return
        self._warned = True
        self._log.warning(
            "the checkpoint of step %d has no number for %s, and those of the evaluation at step "
            "%d are in no checkpoint: KeepBest cannot keep it. Save at the steps of evaluations: "
            "give save_checkpoint_steps the steps between evaluations",
            step,
            ", ".join(map(repr, self.last)),
            evaluated,
        )

    def by_step(self) -> dict[int, dict[str, float]]:
        """Return the metrics by tag, by step, in the order of steps.

        Raises:
            RuntimeError: If the hook has never begun.
        """
        self._check_open()
        return dict(sorted(self.history.items())) if self._files is None else self._files.read()


class Evaluation(NamedTuple):
    """The outcome of one evaluation.

    Attributes:
        metrics: The metrics by tag, a number each.
        runs: How many runs it took.
    """

    metrics: Mapping[str, float]
    runs: int


class EvaluatingHook(TimedHook):
    """Evaluates when its timer triggers, and writes, logs and keeps the metrics.

    Args:
        timer: Says when to evaluate.
        results: Keeps and writes the metrics.
    """

    #: Other hooks use the metrics of a step at that very step.
    first: ClassVar[bool] = True

    def __init__(self, timer: Timer, results: EvaluationResults) -> None:
        super().__init__(timer)
        self._results = results
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
        super().begin()
        self._dropped_at = None
        self._results.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._results.start(session)
        if self._dropped_at == step_of(session):
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
        with not_training(raw), graph_of(raw.graph).preserved_objects():
            try:
                found = self._run_evaluation(raw, training)
            except LoopStoppedError as stopped:
                _log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                return False
            except Exception as error:
                add_note(error, f"in the evaluation at step {step}")
                raise
        name, secs = self.hook_name or type(self).__name__, clock.monotonic() - start
        self._results.record(name, step, found.metrics, found.runs, secs)
        return True


class MetricHook(TimedHook):
    """Acts on each value of a metric: of an evaluation of the same loop, or of a tensor when due.

    Args:
        metric: The metric of an evaluation; or a tensor or its name, a single number.
        every_n_steps: For a tensor: fetch it at the multiples of this number.
        trigger: For a tensor: says when to fetch it.

    Raises:
        ValueError: For a tensor without ``every_n_steps`` or ``trigger``, and a metric with one of
            these.
    """

    def __init__(
        self,
        metric: EvaluationMetric | Tensor | str,
        every_n_steps: int | None,
        trigger: Trigger | None,
    ) -> None:
        self._evaluated = metric if isinstance(metric, EvaluationMetric) else None
        if self._evaluated is None:
            super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
        elif every_n_steps is not None or trigger is not None:
            raise ValueError(
                "every_n_steps and trigger must be left out for a metric of an evaluation, each "
                f"value of which counts, got every_n_steps={every_n_steps!r}, trigger={trigger!r}"
            )
        else:
            super().__init__(EvaluationTimer(self._evaluated.evaluation))
        self._tensors = NamedTensors({} if self._evaluated else {"metric": metric})
        self._metric = metric if isinstance(metric, str) else metric.name

    def begin(self) -> None:
        super().begin()
        self._request = SessionRunArgs(self._tensors.fetches())

    def next_due(self) -> Due | None:
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_due = self._timer.should_trigger_for_step(next_step_of(run_context))
        return self._request if is_due and self._evaluated is None else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if not self._timer.should_trigger_for_step(step):
            return
        if self._evaluated is not None:
            self._take_now(run_context.session, step, self._evaluated.last())
        elif run_values.results is not None:
            value = number(self._metric, run_values.results["metric"])
            self._take_now(run_context.session, step, value)

    def _take_now(self, session: RawSession, step: int, value: float) -> None:
        self._timer.update_last_triggered_step(step)
        self._take(session, step, value)

    @abstractmethod
    def _take(self, session: RawSession, step: int, value: float) -> None:
        """Act on a value that the metric has at ``step``."""
