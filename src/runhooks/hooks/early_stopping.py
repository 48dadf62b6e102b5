"""Early stopping: hooks that stop the loop because of what evaluations have found.

Names and arguments are those of the former ``tf.estimator.experimental``. The metrics are read from
the event files of the evaluations, whoever makes these: an ``EvaluationHook`` of the same loop,
which is then the ``estimator``, or another process.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook
from runhooks.hooks.early_stopping_hook import RUN_EVERY_SECS, EarlyStoppingHook
from runhooks.hooks.estimator import eval_dir_of
from runhooks.hooks.eval_metrics import EvalMetrics
from runhooks.hooks.stop_rules import Improvement, Metric, Threshold
from runhooks.trigger import Trigger


def read_eval_metrics(eval_dir: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """The scalars in the event files of ``eval_dir``, by tag, by global step, in order.

    Empty if there is no such directory yet. Where a tag was written several times at a step the
    last value counts, and nothing of steps that a resumed session has then made again.
    """
    return EvalMetrics(eval_dir).read()


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """A hook that asks to stop once ``should_stop_fn()`` is true.

    It is called at the first step and then every ``run_every_secs`` seconds or ``run_every_steps``
    steps, or as ``trigger`` says.

    ``estimator``: None, or an object whose ``config.is_chief`` says whether this is the chief of a
    cluster of TensorFlow: the chief alone calls the function, and the other workers, which have the
    hook as well, stop when it does. Without that each calls it for itself.

    Raises TypeError if ``should_stop_fn`` cannot be called, ValueError unless exactly one cadence
    is given: with ``run_every_steps``, ``run_every_secs`` must be None.
    """
    arguments.given(should_stop_fn=should_stop_fn)
    arguments.function(should_stop_fn=should_stop_fn)
    return EarlyStoppingHook(
        "EarlyStoppingHook", should_stop_fn, estimator, run_every_secs, run_every_steps, trigger
    )


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """A hook that asks to stop once an evaluation finds ``metric_name`` above ``threshold``.

    ``estimator``: an object whose ``eval_dir()`` is where evaluations write, or ``eval`` in its
    ``model_dir``, unless ``eval_dir`` says it; or None. Evaluations before step ``min_steps`` do
    not count. A NaN is no value above or below anything; a warning says that it was met. The rest,
    and what is raised, as for ``make_early_stopping_hook``; also ValueError if it is not known
    where to read.
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps)
    rule = Threshold(metric, threshold, operator.gt, "higher")
    name = f"stop_if_higher_hook({metric_name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """As ``stop_if_higher_hook``, for a ``metric_name`` below ``threshold``."""
    metric = _metric(metric_name, estimator, eval_dir, min_steps)
    rule = Threshold(metric, threshold, operator.lt, "lower")
    name = f"stop_if_lower_hook({metric_name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """A hook that asks to stop when evaluations find no new highest ``metric_name`` any more.

    That is when ``max_steps_without_increase`` global steps lie between the evaluation that found
    the highest value and a later one. A NaN is never the highest value: the steps without an
    increase go on, counted from the first evaluation if there was no other value yet. What stops
    the loop says how many were NaN. The rest as for ``stop_if_higher_hook``.
    """
    metric = _metric(metric_name, estimator, eval_dir, min_steps)
    rule = Improvement(metric, max_steps_without_increase, operator.gt, "increase")
    name = f"stop_if_no_increase_hook({metric_name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = RUN_EVERY_SECS,
    run_every_steps: int | None = None,
    *,
    trigger: Trigger | None = None,
) -> SessionRunHook:
    """As ``stop_if_no_increase_hook``, for the lowest ``metric_name``."""
    metric = _metric(metric_name, estimator, eval_dir, min_steps)
    rule = Improvement(metric, max_steps_without_decrease, operator.lt, "decrease")
    name = f"stop_if_no_decrease_hook({metric_name})"
    return EarlyStoppingHook(name, rule, estimator, run_every_secs, run_every_steps, trigger)


def _metric(
    name: str, estimator: Any, eval_dir: str | os.PathLike[str] | None, min_steps: int
) -> Metric:
    if eval_dir is not None:
        return Metric(name, eval_dir, min_steps)
    if (found := eval_dir_of(estimator)) is None:
        raise ValueError(
            "eval_dir must be given, the directory that evaluations write to, unless estimator "
            f"has an eval_dir() or a model_dir, got estimator={estimator!r}"
        )
    return Metric(name, found, min_steps, getattr(estimator, "check_in_session", None))
