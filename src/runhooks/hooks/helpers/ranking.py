"""``check_ranking``: whether a saver ranks checkpoints by metrics that exist."""

from __future__ import annotations

import inspect
from typing import Any

from runhooks.checkpoint import Saver
from runhooks.hooks.helpers.evaluating_hook import EvaluatingHook


def check_ranking(saver: Any) -> None:
    """Raise ValueError if ``saver`` ranks by a metric that its evaluating hook does not have.

    What other functions return for ``metrics`` is known only when a checkpoint is saved.
    """
    if not isinstance(saver, Saver) or not inspect.ismethod(saver.metrics):
        return
    hook = saver.metrics.__self__
    if not isinstance(hook, EvaluatingHook):
        return
    for name in saver.ranked_by:
        try:
            hook.metric(name)
        except ValueError as error:
            raise ValueError(f"KeepBest({name!r}) of the saver: {error}") from None
