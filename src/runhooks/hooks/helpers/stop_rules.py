"""The rules by which the metrics of evaluations stop a loop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping

from runhooks import arguments
from runhooks.near_names import suggestion

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
