"""Early stopping: hooks that stop the loop because of the results of evaluations.

The metrics are those of an ``EvaluationHook`` of the same loop, ``evaluation.metric("accuracy")``,
or are read from the event files that another process writes: names and arguments are then those of
the former ``tf.estimator.experimental``.
"""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable
from numbers import Real
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
from runhooks.graph import Tensor, get_default_graph
from runhooks.hooks.helpers.estimator import configured, eval_dir_of
from runhooks.hooks.helpers.eval_metrics import EvalMetrics
from runhooks.hooks.helpers.evaluating_hook import EvaluatingHook
from runhooks.hooks.helpers.evaluation_metric import EvaluationMetric, EvaluationTimer
from runhooks.hooks.helpers.session import (
    ask_coordinator,
    ask_to_stop,
    required_global_step,
    step_of,
)
from runhooks.hooks.helpers.stop_rules import Improvement, Metric, Threshold
from runhooks.hooks.helpers.timed_hook import TimedHook
from runhooks.stores import hidden, masked
from runhooks.trigger import DefaultSecs, Due, FirstStepTimer, Timer, Trigger, trigger_of

_log = logging.getLogger("runhooks")

_RUN_EVERY_SECS = DefaultSecs(60.0)


class EarlyStoppingHook(TimedHook):
    """Asks to stop once ``should_stop()`` is true.

    In a TensorFlow cluster, the other workers stop when the chief does, and never call
    ``should_stop``.

    Args:
        name: The name of the hook.
        should_stop: Called when the hook is due; returns whether to stop, or a str that says why.
        estimator: An object whose ``config.is_chief`` says whether this process is the chief of a
            cluster. Without that, or if it is None, each process decides for itself. For an
            ``EvaluationMetric``, the hook is due whenever the metric is evaluated, unless another
            cadence is given, and when a session opens.
        run_every_secs: Call it at the first step, and then once in that many seconds.
        run_every_steps: Call it at the multiples of this number.
        trigger: Says when to call it.

    Raises:
        ValueError: Unless exactly one of ``run_every_secs``, ``run_every_steps`` and ``trigger`` is
            given.
    """

    def __init__(
        self,
        name: str,
        should_stop: Callable[[], bool | str],
        estimator: Any,
        run_every_secs: float | None,
        run_every_steps: int | None,
        trigger: Trigger | None,
    ) -> None:
        chosen = trigger_of(trigger, run_every_secs=run_every_secs, run_every_steps=run_every_steps)
        is_default = trigger is None and chosen.every_secs is _RUN_EVERY_SECS
        self._follows = isinstance(estimator, EvaluationMetric) and is_default
        super().__init__(
            EvaluationTimer(estimator.evaluation) if self._follows else _timer(trigger, chosen)
        )
        self._should_stop = should_stop
        self._is_chief = configured(estimator, "is_chief")
        self.hook_name = name

    def begin(self) -> None:
        self._flag = None if self._is_chief is None else get_default_graph().stop_flag()
        self._chiefs_flag: Tensor | None = None  # fetched by a worker, in every run
        if self._flag is not None and not self._is_chief:
            self._chiefs_flag = self._flag.tensor
        else:
            required_global_step(self)
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        if self._chiefs_flag is not None:
            return
        step = step_of(session)
        self._timer.start(step)
        if self._flag is not None:
            self._flag.clear(session)
        # A run that it has ended makes no further step when it is resumed.
        if self._follows and coord is not None and (why := self._asks_to_stop(step)):
            ask_coordinator(coord, why if isinstance(why, str) else None)

    def next_due(self) -> Due | None:
        return None if self._chiefs_flag is not None else self._timer.due()

    def watched(self) -> Tensor | None:
        return self._chiefs_flag

    def watch(self, step: int | None, value: Any) -> bool:
        if value:
            _log.info("%s: the chief has asked to stop", self.hook_name)
        return bool(value)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return None if self._chiefs_flag is None else SessionRunArgs(self._chiefs_flag)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._chiefs_flag is not None:
            if self.watch(None, run_values.results):
                run_context.request_stop()
            return
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if why := self._asks_to_stop(step):
                if self._flag is not None:
                    self._flag.set(run_context.session)
                ask_to_stop(run_context, why if isinstance(why, str) else None)

    def _asks_to_stop(self, step: int) -> bool | str:
        why = self._should_stop()
        if why:
            because = f": {why}" if isinstance(why, str) else ""
            _log.info("%s asks to stop at step %d%s", self.hook_name, step, because)
        return why


def _timer(trigger: Trigger | None, chosen: Trigger) -> Timer:
    # By steps it acts where evaluations do; by seconds at the first step too, as in TensorFlow.
    by_steps = trigger is not None or chosen.every_secs is None
    return Timer(chosen) if by_steps else FirstStepTimer(chosen)


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool | str],
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """Return a hook that asks to stop once ``should_stop_fn()`` is true.

        hooks = [rh.make_early_stopping_hook(None, lambda: stop_file.exists(), run_every_steps=100)]

    Args:
        estimator: None, or an object whose ``config.is_chief`` says whether this is the chief of a
            TensorFlow cluster. Only the chief calls the function; the other workers, which need the
            hook too, stop when the chief does. Otherwise, each process calls it for itself.
        should_stop_fn: Returns whether to stop; a str says why.
        run_every_secs: Call it at the first step, and then once in that many seconds.
        run_every_steps: Call it at the multiples of this number.
        trigger: Says when to call it.

    Raises:
        TypeError: If ``should_stop_fn`` is not a function.
        ValueError: If more than one of the last three is given.
    """
    arguments.given(should_stop_fn=should_stop_fn)
    arguments.function(should_stop_fn=should_stop_fn)
    return EarlyStoppingHook(
        "EarlyStoppingHook", should_stop_fn, estimator, run_every_secs, run_every_steps, trigger
    )


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str | None = None,
    threshold: float | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """Return a hook that asks to stop once an evaluation finds a metric above ``threshold``.

    A NaN is neither above nor below anything; it is logged once, as a warning.

        hook = rh.stop_if_higher_hook(evaluation.metric("accuracy"), threshold=0.99)

    Args:
        estimator: A metric of an ``EvaluationHook`` or ``InMemoryEvaluatorHook`` of the loop. The
            hook then checks it whenever it is evaluated, and when a session opens, unless another
            argument says otherwise. As in TensorFlow, also any object with an ``eval_dir()`` that
            returns where evaluations write, or with a ``model_dir`` in which they write to
            ``eval``; or None. Its ``config.is_chief`` works as in ``make_early_stopping_hook``.
        metric_name: The tag under which evaluations write the metric, if ``estimator`` does not
            say.
        threshold: The value to compare with.
        eval_dir: The directory to which evaluations write; None: that of ``estimator``.
        min_steps: Ignore evaluations before this global step.
        run_every_secs: Check at the first step, and then every this many seconds.
        run_every_steps: Check at the multiples of this number, after any ``EvaluationHook`` that is
            due at the same step.
        trigger: When to check.

    Raises:
        ValueError: If more than one of the last three is given, or if neither ``eval_dir`` nor
            ``estimator`` says where to read.
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps, "threshold")
    rule = Threshold(metric, threshold, operator.gt, "higher")
    name = f"stop_if_higher_hook({metric.name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str | None = None,
    threshold: float | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """As ``stop_if_higher_hook``, for a metric below ``threshold``.

        hook = rh.stop_if_lower_hook(evaluation.metric("loss"), threshold=0.01)

    The arguments are the same.
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps, "threshold")
    rule = Threshold(metric, threshold, operator.lt, "lower")
    name = f"stop_if_lower_hook({metric.name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str | None = None,
    max_steps_without_increase: int | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """Return a hook that asks to stop when a metric has stopped increasing.

    It stops when an evaluation is ``max_steps_without_increase`` global steps or more after the one
    that found the highest value. NaN is never the highest value: it counts as no increase, from the
    first evaluation on if there was no other value yet. The log says how many values were NaN. All
    other arguments are those of ``stop_if_higher_hook``.

        accuracy = evaluation.metric("accuracy")
        hook = rh.stop_if_no_increase_hook(accuracy, max_steps_without_increase=1000)
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps, "max_steps_without_increase")
    rule = Improvement(metric, max_steps_without_increase, operator.gt, "increase")
    name = f"stop_if_no_increase_hook({metric.name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str | None = None,
    max_steps_without_decrease: int | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """As ``stop_if_no_increase_hook``, for a metric that should decrease.

        loss = evaluation.metric("loss")
        hook = rh.stop_if_no_decrease_hook(loss, max_steps_without_decrease=1000)

    The arguments are those of ``stop_if_no_increase_hook``, for a decrease.
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps, "max_steps_without_decrease")
    rule = Improvement(metric, max_steps_without_decrease, operator.lt, "decrease")
    name = f"stop_if_no_decrease_hook({metric.name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def read_eval_metrics(eval_dir: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """Return the scalars in the event files of ``eval_dir``, by tag, by global step, in order.

    Empty if the directory does not exist yet. If a tag was written several times at one step, the
    last value counts. Values from before a resume are left out if the resumed session repeated
    their steps.
    """
    return EvalMetrics(eval_dir).read()


def _metric(
    name: str | None,
    estimator: Any,
    eval_dir: str | os.PathLike[str] | None,
    min_steps: int,
    limit: str,
) -> Metric:
    if isinstance(name, Real):
        raise ValueError(f"metric_name must be a str, got {name!r}: write {limit}={name!r}")
    if isinstance(estimator, EvaluationMetric):
        if name is not None or eval_dir is not None:
            raise ValueError(
                f"metric_name and eval_dir must be left out, got {name!r} and "
                f"{masked(repr(eval_dir))}: {estimator!r} says both"
            )
        return Metric(
            estimator.name, estimator.evaluation.metrics_by_step, estimator.place, min_steps
        )
    if eval_dir is None and isinstance(estimator, EvaluatingHook):
        place = estimator.hook_name or type(estimator).__name__
        return Metric(name, estimator.metrics_by_step, place, min_steps)
    arguments.directory(eval_dir=eval_dir)
    found = eval_dir_of(estimator) if eval_dir is None else eval_dir
    if found is None:
        raise ValueError(
            "estimator must say where the evaluations come from: an rh.EvaluationHook of this "
            "loop, one of its metrics, hook.metric(name), or an object with an eval_dir() or a "
            f"model_dir; got {estimator!r}. Or give eval_dir, the directory they write to"
        )
    return Metric(name, EvalMetrics(found).read, hidden(os.fspath(found)), min_steps)
