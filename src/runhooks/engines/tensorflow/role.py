"""The role that TensorFlow's distribute coordinator gives to a process."""

from __future__ import annotations

import copy
from typing import Any

from tensorflow.python.distribute.distribute_coordinator_context import get_current_worker_context

from runhooks.engines.role import Role, alone

#: Strategies that save with operations in which every worker takes part.
_COLLECTIVE = {
    *("CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1"),
    "MultiWorkerMirroredStrategy",
}


def current_role(master: str, is_chief: bool, config: Any) -> Role:
    """What the worker context of this thread says; without one, what the program says."""
    context = get_current_worker_context()
    if not context:
        return alone(master, is_chief, config)
    strategy = getattr(context, "_strategy", None)
    # Who need not write still takes part in what is collective: what it writes is for nobody.
    aside = None
    if in_step := type(strategy).__name__ in _COLLECTIVE:
        aside = f"tmp_{context.task_type}_{context.task_id}" if context.task_type else "tmp"
    return Role(
        master=context.master_target,
        config=_merged(config, context.session_config),
        is_chief=not strategy or context.experimental_should_init,
        has_chief_hooks=context.is_chief,
        summaries="" if context.should_save_summary else aside,
        checkpoints="" if context.should_checkpoint else aside,
        in_step=in_step,
    )


def _merged(config: Any, of_context: Any) -> Any:
    if config is None or of_context is None:
        return of_context if config is None else config
    merged = copy.deepcopy(config)
    merged.MergeFrom(of_context)
    return merged
