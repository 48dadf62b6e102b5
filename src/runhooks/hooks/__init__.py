"""The hooks that come with runhooks, one a file."""

from runhooks.hooks.checkpoint_saver import CheckpointSaverHook
from runhooks.hooks.checkpoint_saver_listener import CheckpointSaverListener
from runhooks.hooks.logging_tensor import LoggingTensorHook
from runhooks.hooks.progress import ProgressHook
from runhooks.hooks.step_counter import StepCounterHook
from runhooks.hooks.stop_at_step import StopAtStepHook
from runhooks.hooks.summary_saver import SummarySaverHook

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "LoggingTensorHook",
    "ProgressHook",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]
