"""Rules by which what evaluations have found ends a loop."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator

from runhooks import arguments
from runhooks.hooks.eval_metrics import EvalMetrics
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")

IsBetter = Callable[[float, float], bool]


class Metric:
    """The values of the metric ``name`` in the event files of ``eval_dir``, from ``min_steps`` on.

    What is not there yet is no error: no evaluation may have ended. If there are others and never
    this one, a warning says so once. ``check``, if given, raises if none will ever be made.
    """

    def __init__(
        self,
        name: str,
        eval_dir: str | os.PathLike[str],
        min_steps: int,
        check: Callable[[], None] | None = None,
    ) -> None:
        arguments.given(metric_name=name)
        arguments.instance(str, metric_name=name)
        arguments.directory(eval_dir=eval_dir)
        arguments.whole(0, min_steps=min_steps)
        self.name = name
        self._check = check
        self._min_steps = min_steps
        self._metrics = EvalMetrics(eval_dir)
        self._is_known = False

    def values(self) -> Iterator[tuple[int, float]]:
        """The values so far, each after its step, in the order of steps."""
        if self._check is not None:
            self._check()
        by_step = self._metrics.read()
        if not self._is_known and by_step:
            known = sorted({name for metrics in by_step.values() for name in metrics})
            self._is_known = True  # or warned of
            if self.name not in known:
                _log.warning(
                    "no metric is named %r in %s%s: there are %s",
                    self.name,
                    self._metrics.eval_dir,
                    suggestion(self.name, known),
                    known,
                )
        for step, metrics in by_step.items():
            if step >= self._min_steps and self.name in metrics:
                yield step, metrics[self.name]


class Threshold:
    """Whether a value of ``metric`` is ``word`` ("higher" or "lower") than ``threshold``."""

    def __init__(self, metric: Metric, threshold: float, is_better: IsBetter, word: str) -> None:
        arguments.given(threshold=threshold)
        arguments.finite(threshold=threshold)
        self._metric = metric
        self._threshold = threshold
        self._is_better = is_better
        self._word = word
        self._warned = False

    def __call__(self) -> bool:
        for step, value in self._metric.values():
            if math.isnan(value) and not self._warned:
                self._warned = True
                _log.warning(
                    "the metric %r is NaN at step %d, which is neither higher nor lower than the "
                    "threshold %g: a NaN does not stop the loop",
                    self._metric.name,
                    step,
                    self._threshold,
                )
            if self._is_better(value, self._threshold):
                _log.info(
                    "the metric %r is %g at step %d, %s than the threshold %g",
                    self._metric.name,
                    value,
                    step,
                    self._word,
                    self._threshold,
                )
                return True
        return False


class Improvement:
    """Whether ``metric`` has shown no ``word`` ("increase" or "decrease") for ``max_steps``."""

    def __init__(self, metric: Metric, max_steps: int, is_better: IsBetter, word: str) -> None:
        arguments.given(**{f"max_steps_without_{word}": max_steps})
        arguments.whole(**{f"max_steps_without_{word}": max_steps})
        self._metric = metric
        self._max_steps = max_steps
        self._is_better = is_better
        self._word = word

    def __call__(self) -> bool:
        best, best_step, nans = math.nan, None, 0
        for step, value in self._metric.values():
            # A NaN is never the best, but the steps are counted from it if it is the first.
            is_better = not math.isnan(value) and (math.isnan(best) or self._is_better(value, best))
            if best_step is None or is_better:
                best, best_step, nans = value, step, 0
            nans += math.isnan(value)
            if step - best_step >= self._max_steps:
                self._report(step, value, best, best_step, nans)
                return True
        return False

    def _report(self, step: int, value: float, best: float, best_step: int, nans: int) -> None:
        _log.info(
            "the metric %r shows no %s for %d steps, of which %d are allowed: it is %g at step %d, "
            "and was %g at step %d%s",
            self._metric.name,
            self._word,
            step - best_step,
            self._max_steps,
            value,
            step,
            best,
            best_step,
            f" ({nans} of the values since are NaN)" if nans else "",
        )
