"""``EvaluationMetric``: one metric of the evaluations of a loop, for the hooks that act on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from runhooks.near_names import suggestion
from runhooks.trigger import Due, Timer, Trigger


class Evaluating(Protocol):
    """The part of an evaluating hook that its metrics need."""

    @property
    def trigger(self) -> Trigger: ...

    @property
    def evaluated_step(self) -> int | None: ...

    @property
    def last_metrics(self) -> Mapping[str, float]: ...

    def metrics_by_step(self) -> Mapping[int, Mapping[str, float]]: ...

    def next_due(self) -> Due | None: ...


class EvaluationMetric:
    """A metric of an evaluating hook of the same loop, as ``hook.metric(name)`` returns it.

    Args:
        evaluation: The hook that evaluates.
        place: Its name, for messages.
        name: The tag of the metric.
    """

    def __init__(self, evaluation: Evaluating, place: str, name: str) -> None:
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

    def __init__(self, evaluation: Evaluating) -> None:
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
