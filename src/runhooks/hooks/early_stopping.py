"""Early stopping: hooks that stop the loop because of the results of evaluations.

They are those of ``tf.estimator.Estimator``: ``model_dir``, ``eval_dir(name)``, ``config``.

The metrics are those of an ``EvaluationHook`` of the same loop, ``evaluation.metric("accuracy")``,
or are read from the event files that another process writes: names and arguments are then those of
the former ``tf.estimator.experimental``.
"""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
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
from runhooks.events.place import inside
from runhooks.graph import Tensor, get_default_graph
from runhooks.hooks.helpers.base import (
    TimedHook,
    ask_coordinator,
    ask_to_stop,
    required_global_step,
    step_of,
)
from runhooks.hooks.helpers.evaluations import (
    EvalMetrics,
    EvaluatingHook,
    EvaluationMetric,
    EvaluationTimer,
)
from runhooks.near_names import suggestion
from runhooks.stores import hidden
from runhooks.trigger import DefaultSecs, Due, FirstStepTimer, Timer, Trigger, trigger_of


def eval_dir_of(estimator: Any, name: str | None = None) -> str | os.PathLike[str] | None:
    """Return the directory of the evaluations called ``name``; None if it is unknown.

    It is that of ``eval_dir()``, or else one in ``model_dir``.
    """
    eval_dir = getattr(estimator, "eval_dir", None)
    if callable(eval_dir):
        return eval_dir(name) if name else eval_dir()  # type: ignore[no-any-return]
    model_dir = getattr(estimator, "model_dir", None)
    if model_dir is None:
        return None
    return inside(model_dir, f"eval_{name}" if name else "eval")


def configured(estimator: Any, name: str) -> Any:
    """Return the attribute ``name`` of the estimator's ``config``; None if there is none."""
    return getattr(getattr(estimator, "config", None), name, None)


_log = logging.getLogger("runhooks")

IsBetter = Callable[[float, float], bool]


class Metric:
    """The values of a metric that evaluations have found.

    There may be none yet. If there are only other metrics, a warning says so once.

    Args:
        name: The tag of the metric.
        read: Returns all metrics by tag, by global step, in the order of steps.
        place: Where they come from, for messages.
        min_steps: The first global step that counts.
    """

    def __init__(
        self,
        name: str | None,
        read: Callable[[], Mapping[int, Mapping[str, float]]],
        place: str,
        min_steps: int,
    ) -> None:
        arguments.given(metric_name=name)
        assert name is not None
        arguments.instance(str, metric_name=name)
        arguments.whole(0, min_steps=min_steps)
        self.name = name
        self._read = read
        self._place = place
        self._min_steps = min_steps
        self._is_known = False

    def values(self) -> Iterator[tuple[int, float]]:
        """Yield the values so far as ``(step, value)``, in the order of steps."""
        by_step = self._read()
        if not self._is_known and by_step:
            known = sorted({name for metrics in by_step.values() for name in metrics})
            self._is_known = True  # or the warning was given
            if self.name not in known:
                _log.warning(
                    "there is no metric %r in %s%s: there are %s",
                    self.name,
                    self._place,
                    suggestion(self.name, known),
                    known,
                )
        for step, metrics in by_step.items():
            if step >= self._min_steps and self.name in metrics:
                yield step, metrics[self.name]


class Threshold:
    """Says so once a value of ``metric`` is ``word``, "higher" or "lower", than ``threshold``.

    Until then it returns an empty str.
    """

    def __init__(
        self, metric: Metric, threshold: float | None, is_better: IsBetter, word: str
    ) -> None:
        arguments.given(threshold=threshold)
        assert threshold is not None
        arguments.finite(threshold=threshold)
        self._metric = metric
        self._threshold = threshold
        self._is_better = is_better
        self._word = word
        self._warned = False

    def __call__(self) -> str:
        for step, value in self._metric.values():
            if math.isnan(value) and not self._warned:
                self._warned = True
                _log.warning(
                    "the metric %r is NaN at step %d: a NaN is neither higher nor lower than the "
                    "threshold %g, and does not stop the loop",
                    self._metric.name,
                    step,
                    self._threshold,
                )
            if self._is_better(value, self._threshold):
                return (
                    f"the metric {self._metric.name!r} is {value:g} at step {step}, {self._word} "
                    f"than the threshold {self._threshold:g}"
                )
        return ""


class Improvement:
    """Says so once ``metric`` has had no ``word``, "increase" or "decrease", for ``max_steps``.

    Until then it returns an empty str.
    """

    def __init__(
        self, metric: Metric, max_steps: int | None, is_better: IsBetter, word: str
    ) -> None:
        arguments.given(**{f"max_steps_without_{word}": max_steps})
        assert max_steps is not None
        arguments.whole(**{f"max_steps_without_{word}": max_steps})
        self._metric = metric
        self._max_steps = max_steps
        self._is_better = is_better
        self._word = word

    def __call__(self) -> str:
        best, best_step, nans = math.nan, None, 0
        for step, value in self._metric.values():
            # A NaN is never the best, but steps count from it if it is the first value.
            is_better = not math.isnan(value) and (math.isnan(best) or self._is_better(value, best))
            if best_step is None or is_better:
                best, best_step, nans = value, step, 0
            nans += math.isnan(value)
            if step - best_step >= self._max_steps:
                since = f" ({nans} values since then are NaN)" if nans else ""
                return (
                    f"the metric {self._metric.name!r} has had no {self._word} for "
                    f"{step - best_step} steps, and {self._max_steps} are allowed: it is {value:g} "
                    f"at step {step}, and was {best:g} at step {best_step}{since}"
                )
        return ""


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
                f"{hidden(eval_dir)!r}: {estimator!r} says both"
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
