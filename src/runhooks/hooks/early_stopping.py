"""Early stopping: hooks that stop the loop because of the results of evaluations.

Names and arguments are those of the former ``tf.estimator.experimental``.
"""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any, ClassVar

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.events.place import place
from runhooks.events.reading.contents import RunContents
from runhooks.events.reading.find import find_files
from runhooks.events.reading.messages import SCALAR, Wanted
from runhooks.events.reading.rows import RowDecoders
from runhooks.hooks.base import TimedHook, step_of
from runhooks.hooks.metrics import EvaluatingHook, EvaluationMetric, EvaluationTimer
from runhooks.near_names import suggestion
from runhooks.session.threads import Coordinator
from runhooks.stores.path import AnyPath, path_of
from runhooks.trigger import DefaultSecs, Due, FirstStepTimer, Timer, Trigger, trigger_of

_log = logging.getLogger("runhooks")


class EvalMetrics:
    """The scalars in the event files of ``eval_dir``, which need not exist yet."""

    def __init__(self, eval_dir: str | os.PathLike[str]) -> None:
        self._dir = path_of(place(eval_dir=eval_dir))
        self._contents = RunContents(RowDecoders(Wanted(None, SCALAR)), purge=True)
        self._warned: set[AnyPath] = set()

    def read(self) -> dict[int, dict[str, float]]:
        """Return the scalars by tag, by step, in the order of steps; reads only what is new."""
        self._contents.update(find_files(self._dir), skip_unreadable=True)
        self._warn_of_damage()
        by_step: dict[int, dict[str, float]] = {}
        for tag in self._contents.scalar_tags():
            steps, values, _ = self._contents.scalars(tag)
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                by_step.setdefault(step, {})[tag] = value
        return dict(sorted(by_step.items()))

    def _warn_of_damage(self) -> None:
        for file in self._contents.files:
            skipped = [it for it in file.records.damages if it.skipped]
            if skipped and file.path not in self._warned:
                self._warned.add(file.path)
                text = "%d bytes of %s are skipped: %s"
                _log.warning(text, skipped[0].skipped, file.path, skipped[0].reason)


class Rule:
    """Says why to stop, by the values of a metric that evaluations have found; "" until then."""

    prefix: ClassVar[str]
    check: ClassVar[Callable[..., None]]

    def __init__(
        self,
        word: str,
        estimator: Any,
        name: str | None,
        eval_dir: str | os.PathLike[str] | None,
        min_steps: int,
        **limit: Any,
    ) -> None:
        ((limit_name, self._limit),) = limit.items()
        if isinstance(name, Real):
            raise ValueError(f"metric_name must be a str, got {name!r}: write {limit_name}={name}")
        self._followed = estimator if isinstance(estimator, EvaluationMetric) else None
        if self._followed is not None:
            if name is not None or eval_dir is not None:
                raise ValueError(
                    f"metric_name and eval_dir must be left out, got {name!r} and "
                    f"{eval_dir!r}: {estimator!r} says both"
                )
            name, estimator = self._followed.name, self._followed.evaluation
        self._read: Callable[[], Mapping[int, Mapping[str, float]]]
        if eval_dir is None and isinstance(estimator, EvaluatingHook):
            self._read, self._place = estimator.metrics_in_training, estimator.title
        elif eval_dir is None or estimator is not None:
            raise ValueError(
                "estimator must be an rh.EvaluationHook of this loop or its hook.metric(name); or "
                f"give None, and the eval_dir of evaluations; got {estimator!r} and {eval_dir=}"
            )
        else:
            self._read, self._place = EvalMetrics(eval_dir).read, os.fspath(eval_dir)
        arguments.given(metric_name=name)
        assert name is not None
        arguments.instance(str, metric_name=name)
        if self._followed is None and isinstance(estimator, EvaluatingHook):
            estimator.metric(name)
        arguments.whole(0, min_steps=min_steps)
        arguments.given(**limit)
        self.check(**limit)
        self._metric = name
        self._min_steps = min_steps
        self._word = word
        self._is_better = operator.gt if word in ("higher", "increase") else operator.lt
        self._is_known = False

    def hook(
        self, run_every_secs: float | None, run_every_steps: int | None, trigger: Trigger | None
    ) -> SessionRunHook:
        name = f"{self.prefix}_{self._word}_hook({self._metric})"
        cadence = run_every_secs, run_every_steps, trigger
        return EarlyStoppingHook(name, self, self._followed, *cadence)

    def __call__(self) -> str:
        raise NotImplementedError

    def values(self) -> Iterator[tuple[int, float]]:
        by_step = self._read()
        if not self._is_known and by_step:
            known = sorted({name for metrics in by_step.values() for name in metrics})
            self._is_known = True  # or the warning was given
            if self._metric not in known:
                near = suggestion(self._metric, known)
                text = "there is no metric %r in %s%s: there are %s"
                _log.warning(text, self._metric, self._place, near, known)
        for step, metrics in by_step.items():
            if step >= self._min_steps and self._metric in metrics:
                yield step, metrics[self._metric]


class Threshold(Rule):
    """Asks to stop once a value is ``word`` than the limit."""

    prefix = "stop_if"
    check = staticmethod(arguments.finite)
    _warned = False

    def __call__(self) -> str:
        for step, value in self.values():
            if math.isnan(value) and not self._warned:
                self._warned = True
                _log.warning(
                    "the metric %r is NaN at step %d: neither higher nor lower than the limit %g",
                    *(self._metric, step, self._limit),
                )
            if self._is_better(value, self._limit):
                return (
                    f"the metric {self._metric!r} is {value:g} at step {step}, {self._word} "
                    f"than the threshold {self._limit:g}"
                )
        return ""


class Improvement(Rule):
    """Asks to stop once there has been no ``word`` for ``steps``, or for more than ``patience``."""

    prefix = "stop_if_no"

    def __init__(self, *where: Any, patience: int | None, **steps: Any) -> None:
        if not isinstance(where[2], Real):  # else the number of steps is in the name's place
            arguments.exactly_one(**steps, patience=patience)
        self._counts_steps = patience is None
        limit = steps if self._counts_steps else {"patience": patience}
        super().__init__(*where, **limit)

    def check(self, **limit: Any) -> None:
        arguments.whole(1 if self._counts_steps else 0, **limit)

    def __call__(self) -> str:
        best, best_step, nans, others = math.nan, None, 0, 0
        for step, value in self.values():
            # A NaN is never the best, but steps count from it if it is the first value.
            is_better = not math.isnan(value) and (math.isnan(best) or self._is_better(value, best))
            if best_step is None or is_better:
                best, best_step, nans, others = value, step, 0, -1
            nans += math.isnan(value)
            others += 1
            passed = step - best_step if self._counts_steps else others
            if passed > self._limit - self._counts_steps:
                since = f" ({nans} values since then are NaN)" if nans else ""
                what = "steps" if self._counts_steps else "evaluations"
                return (
                    f"the metric {self._metric!r} has had no {self._word} for {passed} {what}, "
                    f"and {self._limit} are allowed: it is {value:g} at step {step}, and was "
                    f"{best:g} at step {best_step}{since}"
                )
        return ""


_RUN_EVERY_SECS = DefaultSecs(60.0)


class EarlyStoppingHook(TimedHook):
    """Asks to stop once ``should_stop()`` is true.

    Without a cadence it is due whenever ``metric`` is evaluated, and when a session opens.
    """

    def __init__(
        self,
        name: str,
        should_stop: Callable[[], bool | str],
        metric: EvaluationMetric | None,
        run_every_secs: float | None,
        run_every_steps: int | None,
        trigger: Trigger | None,
    ) -> None:
        chosen = trigger_of(trigger, run_every_secs=run_every_secs, run_every_steps=run_every_steps)
        timer = Timer(chosen)
        if trigger is None and metric is not None and chosen.every_secs is _RUN_EVERY_SECS:
            timer = EvaluationTimer(metric.evaluation)
        elif trigger is None and chosen.every_secs is not None:  # as in TensorFlow
            timer = FirstStepTimer(chosen)
        super().__init__(timer)
        self._follows = isinstance(timer, EvaluationTimer)
        self._should_stop = should_stop
        self.hook_name = name

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        # A run that it has ended makes no further step when it is resumed.
        if self._follows and coord is not None:
            self._check(coord, step_of(session))

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._check(run_context, step)

    def _check(self, asked: SessionRunContext | StopSignal, step: int) -> None:
        why = self._should_stop()
        if not why:
            return
        because = f": {why}" if isinstance(why, str) else ""
        _log.info("%s asks to stop at step %d%s", self.hook_name, step, because)
        if isinstance(why, str) and isinstance(asked, SessionRunContext | Coordinator):  # ours
            asked.request_stop(reason=why)
        else:
            asked.request_stop()


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
        estimator: None. TensorFlow takes an estimator here.
        should_stop_fn: Returns whether to stop; a str says why. Each process calls its own.
        run_every_secs: Call it at the first step, and then every this many seconds.
        run_every_steps: Call it at the multiples of this number.
        trigger: When to call it.

    Raises:
        TypeError: If ``should_stop_fn`` is no function, or ``estimator`` is not None.
        ValueError: If more than one cadence is given.
    """
    if estimator is not None:
        raise TypeError(f"estimator must be None, got {estimator!r}: each process decides itself")
    arguments.given(should_stop_fn=should_stop_fn)
    arguments.function(should_stop_fn=should_stop_fn)
    return EarlyStoppingHook(
        "EarlyStoppingHook", should_stop_fn, None, run_every_secs, run_every_steps, trigger
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
        estimator: A metric of an ``EvaluationHook`` of the loop, checked whenever it is evaluated,
            and when a session opens, unless a cadence is given. Or the hook itself; or None, to
            read what another process writes.
        metric_name: The tag of the metric, if ``estimator`` does not say.
        threshold: The value to compare with.
        eval_dir: The directory to which another process writes evaluations.
        min_steps: Ignore evaluations before this global step.
        run_every_secs: Check at the first step, and then every this many seconds.
        run_every_steps: Check at the multiples of this number.
        trigger: When to check.

    Raises:
        ValueError: If more than one cadence is given, or unless one of ``estimator`` and
            ``eval_dir`` says where to read.
    """
    where = estimator, metric_name, eval_dir, min_steps
    rule = Threshold("higher", *where, threshold=threshold)
    return rule.hook(run_every_secs, run_every_steps, trigger)


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
    """Return a hook that asks to stop once an evaluation finds a metric below ``threshold``.

    The arguments are those of ``stop_if_higher_hook``.

        hook = rh.stop_if_lower_hook(evaluation.metric("loss"), threshold=0.01)
    """
    where = estimator, metric_name, eval_dir, min_steps
    rule = Threshold("lower", *where, threshold=threshold)
    return rule.hook(run_every_secs, run_every_steps, trigger)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str | None = None,
    max_steps_without_increase: int | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    patience: int | None = None,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """Return a hook that asks to stop when a metric has stopped increasing.

    It stops when an evaluation is ``max_steps_without_increase`` global steps or more after the one
    that found the highest value; or, with ``patience=5``, when more than 5 evaluations in a row
    have found no higher one. Exactly one of the two is given. NaN, even the first value, counts as
    no increase. All other arguments are those of ``stop_if_higher_hook``.

        accuracy = evaluation.metric("accuracy")
        hook = rh.stop_if_no_increase_hook(accuracy, patience=5)
    """
    where = estimator, metric_name, eval_dir, min_steps
    steps = {"max_steps_without_increase": max_steps_without_increase}
    rule = Improvement("increase", *where, patience=patience, **steps)
    return rule.hook(run_every_secs, run_every_steps, trigger)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str | None = None,
    max_steps_without_decrease: int | None = None,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = _RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    patience: int | None = None,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """Return a hook that asks to stop when a metric has stopped decreasing.

    The arguments are those of ``stop_if_no_increase_hook``, for a decrease.

        loss = evaluation.metric("loss")
        hook = rh.stop_if_no_decrease_hook(loss, patience=5)
    """
    where = estimator, metric_name, eval_dir, min_steps
    steps = {"max_steps_without_decrease": max_steps_without_decrease}
    rule = Improvement("decrease", *where, patience=patience, **steps)
    return rule.hook(run_every_secs, run_every_steps, trigger)


def read_eval_metrics(eval_dir: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """Return the scalars in the event files of ``eval_dir``, by tag, by global step, in order.

    Empty if the directory does not exist yet. Of several values at one step, the last counts.
    Values from before a resume are left out if the resumed session repeated their steps.
    """
    return EvalMetrics(eval_dir).read()
