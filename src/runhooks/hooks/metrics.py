"""Metrics of a training: the hooks that find them by evaluating it, and those that act on them."""

from __future__ import annotations

import logging
import math
import os
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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
from runhooks.errors import add_note
from runhooks.graph import Tensor
from runhooks.graph.generators import remembered_generators
from runhooks.hooks.base import (
    FetchingHook,
    SummaryOutput,
    SummaryWriter,
    TimedHook,
    log_of,
    not_training,
    step_of,
)
from runhooks.near_names import suggestion
from runhooks.session.hook_list import LoopStoppedError
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Timer, Trigger, timer_of

_log = logging.getLogger("runhooks")


@dataclass(frozen=True, repr=False)
class EvaluationMetric:
    """A metric of an evaluating hook, as ``hook.metric(name)`` returns it."""

    evaluation: EvaluatingHook
    name: str

    def __repr__(self) -> str:
        return f"<EvaluationMetric {self.name!r} of {self.evaluation.title}>"

    def by_step(self) -> dict[int, float]:
        """Return its values by global step, in order.

        ValueError if the last evaluation has found only other metrics.
        """
        found = self.evaluation.metrics_by_step()
        if self.evaluation.evaluated_step is not None:
            self.last()
        return {step: it[self.name] for step, it in found.items() if self.name in it}

    def next_due(self) -> Due | None:
        return self.evaluation.next_due()

    def last(self) -> float:
        """Return the value of the last evaluation; ValueError if there is none."""
        found = self.evaluation.last_metrics
        if self.name not in found:
            raise _unknown(self.name, self.evaluation.title, found)
        return found[self.name]


def _unknown(name: str, place: str, known: Collection[str]) -> ValueError:
    has = f"which has {sorted(known)}" if known else "which has none"
    return ValueError(f"there is no metric {name!r} in {place}, {has}{suggestion(name, known)}")


class EvaluationTimer(Timer):
    """Triggers once after each evaluation of a hook of the same loop.

    In TensorFlow's own sessions, that hook may be called last: this then triggers a run later.
    """

    def __init__(self, evaluation: EvaluatingHook) -> None:
        super().__init__(evaluation.trigger)
        self._evaluation = evaluation

    def reset(self) -> None:
        super().reset()
        self._seen: int | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        return self._evaluation.evaluated_step not in (None, self._seen)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        self._seen = self._evaluation.evaluated_step
        return super().update_last_triggered_step(step)

    def due(self) -> Due:
        return self._evaluation.next_due() or Due(runs=1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._seen = None  # the hook may have made up an evaluation that a stop had ended


def number(label: str, value: Any) -> float:
    """Return ``value`` as a float; ValueError or TypeError if it is not a single number."""
    array = np.asarray(to_numpy(value))  # NumPy cannot read a bfloat16 of torch
    if array.size != 1:
        raise ValueError(
            f"{label!r} must be a single number in each run of an evaluation, got an array of "
            f"shape {array.shape}"
        )
    try:
        return float(array.reshape(()))
    except (TypeError, ValueError):  # ValueError: of a str
        raise TypeError(f"{label!r} must be a real number, got {value!r}") from None


class _Dropped(dict[str, float]):
    """The metrics of an evaluation that a stop has ended: NaN by any name.

    Hooks that act on that step must not fail, or it would not be saved.
    """

    def __missing__(self, name: str) -> float:
        return math.nan


class EvaluatingHook(TimedHook):
    """Evaluates when its timer triggers, and writes, logs and keeps the metrics."""

    first: ClassVar[bool] = True

    def __init__(
        self,
        timer: Timer,
        output_dir: str | os.PathLike[str] | None,
        summary_writer: SummaryWriter | None,
        hook_name: str | None,
    ) -> None:
        super().__init__(timer)
        self.hook_name = hook_name
        self._output = SummaryOutput(output_dir, summary_writer)
        #: The step of the last evaluation in this session, if any.
        self.evaluated_step: int | None = None
        self._found: dict[int, dict[str, float]] | None = None  # by step; None: it has never begun
        self._dropped_at: int | None = None  # the step of an evaluation that a stop has ended
        self._ended_at: int | None = None  # that of one at the end of a session
        self._wanted: set[str] = set()  # the metrics that others act on
        self._known: Collection[str] | None = None  # its metrics; None: an evaluation will tell

    @property
    def title(self) -> str:
        return self.hook_name or type(self).__name__

    @property
    def trigger(self) -> Trigger:
        return self._timer.trigger

    @property
    def last_metrics(self) -> Mapping[str, float]:
        """The metrics of the last evaluation, in a resumed session, too; empty if there was none.

        Each is NaN if a stop has ended that evaluation, until a resumed session has repeated it.
        """
        found = self.metrics_by_step()
        last = found[max(found)] if found else {}
        if self._dropped_at is None:
            return last
        return _Dropped(dict.fromkeys([*(self._known or last), *sorted(self._wanted)], math.nan))

    def metric(self, name: str) -> EvaluationMetric:
        """Return the metric ``name``, for ``stop_if_no_increase_hook`` and others that act on it.

        If there is none, the session raises ValueError, in the first evaluation at the latest.
        """
        arguments.given(name=name)
        arguments.instance(str, name=name)
        self._check_names([name])
        self._wanted.add(name)
        return EvaluationMetric(self, name)

    def metrics_by_step(self) -> dict[int, dict[str, float]]:
        """Return all metrics so far, by global step; RuntimeError before the hook's session."""
        if self._found is None:
            raise RuntimeError(
                "no session has the hook whose metrics were asked for: add it to the hooks"
            )
        return dict(self._found)

    def metrics_in_training(self) -> dict[int, dict[str, float]]:
        """Return those that it would have found had no session ended."""
        found = self.metrics_by_step()
        if self._ended_at is not None:
            found.pop(self._ended_at, None)
        return found

    def begin(self) -> None:
        super().begin()
        self._output.open()
        self._known = None
        self._found = {}
        self.evaluated_step = self._dropped_at = self._ended_at = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        now, self._log = step_of(session), log_of(session)
        self.evaluated_step = None
        self._found = {step: it for step, it in (self._found or {}).items() if step <= now}
        self._forget_end(now)
        self._output.start(session)
        self._output.flush()  # readers of the files drop the steps that are made again
        if self._dropped_at == now:
            self._evaluate_in_training(session, None)
            if self._dropped_at is None:
                session_of(session).note_unsaved()  # or each restart would repeat it

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._evaluate_in_training(run_context.session, run_context.original_args)
            self._timer.update_last_triggered_step(step)

    def end(self, session: RawSession) -> None:
        # The timer is not updated: a run that resumes here keeps to its steps.
        if self._timer.should_trigger_at_end(step_of(session)) or (
            # Ranks evaluate together, even if one has just done so at a step of its own.
            self.trigger.at_end and session_of(session).ended_apart
        ):
            is_done = self._evaluate(session, None)
            if is_done and self._timer.last_triggered_step() != step_of(session):
                self._ended_at = step_of(session)

    def state_dict(self) -> Mapping[str, Any]:
        own: dict[str, Any] = {"dropped_at": self._dropped_at, "ended_at": self._ended_at}
        own["metrics"] = self._found or None
        return {**super().state_dict(), **{k: it for k, it in own.items() if it is not None}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._found = dict(state.get("metrics", {}))
        self._dropped_at, self._ended_at = state.get("dropped_at"), state.get("ended_at")

    @abstractmethod
    def _run_evaluation(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> tuple[Mapping[str, float], int]:
        """Return metrics by tag, and the number of runs; ``training`` is its request, if known."""

    def _evaluate_in_training(self, session: RawSession, training: SessionRunArgs | None) -> None:
        is_done = self._evaluate(session, training)
        self._dropped_at = None if is_done else step_of(session)
        if is_done:
            self._ended_at = None

    def _evaluate(self, session: RawSession, training: SessionRunArgs | None) -> bool:
        """Evaluate; return False if a stop has ended it."""
        raw, step, start = session_of(session), step_of(session), clock.monotonic()
        self._forget_end(step)
        put_back = remembered_generators()
        with not_training(raw), graph_of(raw.graph).preserved_objects():
            try:
                metrics, runs = self._run_evaluation(raw, training)
            except LoopStoppedError as stopped:
                self._log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                put_back()  # a resumed session, which evaluates again, draws what this one has
                return False
            except Exception as error:
                add_note(error, f"in the evaluation at step {step}")
                raise
        secs = clock.monotonic() - start
        if self.evaluated_step is None:
            self._know(metrics.keys())
        assert self._found is not None, "it has begun"
        self._found[step], self.evaluated_step = dict(metrics), step
        values = [scalar_value(name, value) for name, value in metrics.items()]
        self._output.add_summary(Summary(values), step)
        self._output.flush()
        line = ", ".join(f"{name} = {value:.6g}" for name, value in metrics.items())
        text, plural = "%s at step %d: %s (%d run%s, %.3f sec)", "" if runs == 1 else "s"
        self._log.info(text, self.title, step, line, runs, plural, secs)
        return True

    def _forget_end(self, step: int) -> None:
        """Forget the evaluation at the end of a session, once training has gone on."""
        if self._ended_at not in (None, step):
            self._found = self.metrics_in_training()
            self._ended_at = None

    def _know(self, names: Collection[str]) -> None:
        """Note its metrics; ValueError if others act on another."""
        self._known = list(names)
        self._check_names(sorted(self._wanted))

    def _check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if self._known is not None and name not in self._known:
                raise _unknown(name, self.title, self._known)


class MetricHook(FetchingHook):
    """Acts on each value of a metric: of an evaluation, or of a tensor when due."""

    def __init__(
        self,
        metric: EvaluationMetric | Tensor | str,
        every_n_steps: int | None,
        trigger: Trigger | None,
        every_n_epochs: float | None = None,
    ) -> None:
        cadence = {"every_n_steps": every_n_steps, "every_n_epochs": every_n_epochs}
        given = {k: it for k, it in {**cadence, "trigger": trigger}.items() if it is not None}
        self._evaluated = metric if isinstance(metric, EvaluationMetric) else None
        if self._evaluated is None:
            super().__init__(timer_of(trigger, **cadence), {"metric": metric})
        elif given:
            raise ValueError(
                "every_n_steps, every_n_epochs and trigger must be left out for a metric of an "
                f"evaluation, got {', '.join(f'{name}={it!r}' for name, it in given.items())}"
            )
        else:
            super().__init__(EvaluationTimer(self._evaluated.evaluation), ())
        self._metric = metric if isinstance(metric, str) else metric.name

    def _take(self, session: RawSession, step: int, values: Any) -> None:
        if self._evaluated is None:
            self._act(session, step, number(self._metric, values["metric"]))
        elif self._metric in self._evaluated.evaluation.last_metrics:  # a validation may lack it
            self._act(session, step, self._evaluated.last())

    @abstractmethod
    def _act(self, session: RawSession, step: int, value: float) -> None:
        """Act on the value at ``step``."""


class ReduceOnPlateauHook(MetricHook):
    """Multiplies a learning rate by ``factor`` when a metric has stopped improving.

    The rule and the rates are those of PyTorch's ``ReduceLROnPlateau``. The metric has to be the
    same on all ranks: each uses its own.

        rate = "state/opt_state/hyperparams/learning_rate"  # of optax.inject_hyperparams
        hooks = [evaluation, rh.ReduceOnPlateauHook(evaluation.metric("loss"), rate)]

    Args:
        metric: A metric of an ``EvaluationHook`` in the same session, of which every value counts;
            or a tensor or its name, a single number.
        learning_rate: Its name in checkpoints, for which ``docs/evaluation.md`` has a table.
        mode: ``"min"`` if a lower metric is better, ``"max"`` if a higher one is.
        factor: What the rate is multiplied by; below 1.
        patience: How many values in a row may fail to improve before the rate is reduced.
        threshold: How much better than the best a value must be.
        threshold_mode: ``"rel"``: a fraction of the best; ``"abs"``: a difference.
        cooldown: How many values to ignore after a reduction.
        min_lr: The lowest rate.
        every_n_steps: Fetch a tensor at the multiples of this number.
        trigger: When to fetch a tensor.
        every_n_epochs: Fetch a tensor at the last step of every so many epochs.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: For a number out of its range, a tensor without exactly one cadence, or a metric
            with one; when a session opens, if nothing is called ``learning_rate``.
    """

    def __init__(
        self,
        metric: EvaluationMetric | Tensor | str,
        learning_rate: str = "learning_rate",
        *,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        every_n_steps: int | None = None,
        trigger: Trigger | None = None,
        every_n_epochs: float | None = None,
        hook_name: str | None = None,
    ) -> None:
        arguments.given(metric=metric, learning_rate=learning_rate, factor=factor, min_lr=min_lr)
        arguments.instance(str, learning_rate=learning_rate)
        arguments.given(patience=patience, threshold=threshold, cooldown=cooldown)
        arguments.positive(factor=factor)
        arguments.whole(0, patience=patience, cooldown=cooldown)
        arguments.not_negative(min_lr=min_lr, threshold=threshold)
        allowed = {
            "mode": (mode, ["min", "max"]),
            "threshold_mode": (threshold_mode, ["rel", "abs"]),
        }
        for name, (value, values) in allowed.items():
            if value not in values:
                raise ValueError(f"{name} must be one of {values}, got {value!r}")
        if factor >= 1:
            raise ValueError(f"factor must be below 1, got {factor!r}")
        super().__init__(metric, every_n_steps, trigger, every_n_epochs)
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._threshold, self._is_relative = threshold, threshold_mode == "rel"
        self._cooldown = cooldown
        self._learning_rate = learning_rate
        self._factor = factor
        self._min_lr = min_lr
        self.hook_name = hook_name

    def begin(self) -> None:
        super().begin()
        self._best = self._sign * math.inf
        self._bad = 0
        self._cooling = 0

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        try:
            session_of(session).read(self._learning_rate)
        except ValueError as error:
            if "hyperparams" not in self._learning_rate.split("/"):
                raise
            raise ValueError(
                f"{error}; optax has a rate in its state only if the optimizer was made with "
                "optax.inject_hyperparams(optax.adam)(learning_rate=...)"
            ) from None
        step = step_of(session)
        if self._evaluated is not None and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._take(session, step, None)

    def state_dict(self) -> Mapping[str, Any]:
        own = {"best": self._best, "bad": self._bad, "cooling": self._cooling}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._best, self._bad, self._cooling = state["best"], state["bad"], state["cooling"]

    def _act(self, session: RawSession, step: int, value: float) -> None:
        needed = self._best
        if not self._is_relative:
            needed -= self._sign * self._threshold
        elif math.isfinite(needed):
            needed *= 1 - self._sign * self._threshold
        if self._sign * value < self._sign * needed:
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._cooling > 0:
            self._cooling -= 1
            self._bad = 0
        if self._bad > self._patience:
            self._cooling, self._bad = self._cooldown, 0
            self._reduce(session_of(session), step)

    def _reduce(self, session: RawSession, step: int) -> None:
        rates = session.read(self._learning_rate)
        new = {name: np.maximum(rate * self._factor, self._min_lr) for name, rate in rates.items()}
        changed = {
            name: reduced.astype(rates[name].dtype)
            for name, reduced in new.items()
            if np.any(rates[name] - reduced > 1e-8)  # as in PyTorch
        }
        if not changed:
            return
        session.assign(changed)
        for name, rate in changed.items():
            _log.info(
                "%s reduces %r from %s to %s at step %d: the best value of %r is %g",
                *(self.hook_name or type(self).__name__, name, rates[name], rate, step),
                *(self._metric, self._best),
            )
