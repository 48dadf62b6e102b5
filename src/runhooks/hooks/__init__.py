"""The hooks that come with runhooks."""

from typing import TYPE_CHECKING

from runhooks.errors import NanLossDuringTrainingError
from runhooks.lazy import lazily

# A program loads the hooks that it uses.
if TYPE_CHECKING:
    from runhooks.hooks.checkpoint_saver import CheckpointSaverHook, CheckpointSaverListener
    from runhooks.hooks.early_stopping import (
        make_early_stopping_hook,
        read_eval_metrics,
        stop_if_higher_hook,
        stop_if_lower_hook,
        stop_if_no_decrease_hook,
        stop_if_no_increase_hook,
    )
    from runhooks.hooks.ema import EmaHook
    from runhooks.hooks.evaluation import EvaluationHook
    from runhooks.hooks.feed_fn import FeedFnHook
    from runhooks.hooks.final_ops import FinalOpsHook
    from runhooks.hooks.garbage_collection import GarbageCollectionHook
    from runhooks.hooks.global_step_waiter import GlobalStepWaiterHook
    from runhooks.hooks.logging_tensor import LoggingTensorHook
    from runhooks.hooks.nan_tensor import NanTensorHook
    from runhooks.hooks.profiler import ProfilerHook
    from runhooks.hooks.progress import ProgressHook
    from runhooks.hooks.reduce_on_plateau import ReduceOnPlateauHook
    from runhooks.hooks.saved_state import SavedStateHook
    from runhooks.hooks.speed import (
        HookTimesHook,
        MemoryHook,
        RecoveryCounterHook,
        StepCounterHook,
        ThroughputHook,
    )
    from runhooks.hooks.stopping import StopAtStepHook, TimeLimitHook
    from runhooks.hooks.summary_saver import SummarySaverHook
    from runhooks.hooks.watchdog import WatchdogHook
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "runhooks.hooks.checkpoint_saver": [
                "CheckpointSaverHook",
                "CheckpointSaverListener",
            ],
            "runhooks.hooks.early_stopping": [
                "make_early_stopping_hook",
                "read_eval_metrics",
                "stop_if_higher_hook",
                "stop_if_lower_hook",
                "stop_if_no_decrease_hook",
                "stop_if_no_increase_hook",
            ],
            "runhooks.hooks.ema": [
                "EmaHook",
            ],
            "runhooks.hooks.evaluation": [
                "EvaluationHook",
            ],
            "runhooks.hooks.feed_fn": [
                "FeedFnHook",
            ],
            "runhooks.hooks.final_ops": [
                "FinalOpsHook",
            ],
            "runhooks.hooks.garbage_collection": [
                "GarbageCollectionHook",
            ],
            "runhooks.hooks.global_step_waiter": [
                "GlobalStepWaiterHook",
            ],
            "runhooks.hooks.speed": [
                "HookTimesHook",
                "MemoryHook",
                "RecoveryCounterHook",
                "StepCounterHook",
                "ThroughputHook",
            ],
            "runhooks.hooks.logging_tensor": [
                "LoggingTensorHook",
            ],
            "runhooks.hooks.nan_tensor": [
                "NanTensorHook",
            ],
            "runhooks.hooks.profiler": [
                "ProfilerHook",
            ],
            "runhooks.hooks.progress": [
                "ProgressHook",
            ],
            "runhooks.hooks.reduce_on_plateau": [
                "ReduceOnPlateauHook",
            ],
            "runhooks.hooks.saved_state": [
                "SavedStateHook",
            ],
            "runhooks.hooks.stopping": [
                "StopAtStepHook",
                "TimeLimitHook",
            ],
            "runhooks.hooks.summary_saver": [
                "SummarySaverHook",
            ],
            "runhooks.hooks.watchdog": [
                "WatchdogHook",
            ],
        },
    )

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "EmaHook",
    "EvaluationHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GarbageCollectionHook",
    "GlobalStepWaiterHook",
    "HookTimesHook",
    "LoggingTensorHook",
    "MemoryHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "RecoveryCounterHook",
    "ReduceOnPlateauHook",
    "SavedStateHook",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "ThroughputHook",
    "TimeLimitHook",
    "WatchdogHook",
    "make_early_stopping_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
