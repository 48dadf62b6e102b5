"""The names of ``tf.compat.v1.train``, and the hooks that ``tf.estimator`` had.

Sessions, creators, scaffolds, coordinators, timers and hooks are those of runhooks; all else, such
as optimizers, savers and queues, is TensorFlow's own.
"""

from typing import Any

import tensorflow as tf

from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    EvaluationHook,
    FeedFnHook,
    FinalOpsHook,
    GarbageCollectionHook,
    GlobalStepWaiterHook,
    HookTimesHook,
    LoggingTensorHook,
    MemoryHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    ProgressHook,
    RecoveryCounterHook,
    SavedStateHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    ThroughputHook,
    TimeLimitHook,
    WatchdogHook,
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from runhooks.session import (
    ChiefSessionCreator,
    Coordinator,
    LooperThread,
    MonitoredSession,
    RecoveryPolicy,
    SessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from runhooks.tensorflow.estimator import missing
from runhooks.tensorflow.scaffold import Scaffold
from runhooks.training import MonitoredTrainingSession
from runhooks.trigger import SecondOrStepTimer, Timer, Trigger

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "EvaluationHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GarbageCollectionHook",
    "GlobalStepWaiterHook",
    "HookTimesHook",
    "LoggingTensorHook",
    "LooperThread",
    "MemoryHook",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "RecoveryCounterHook",
    "RecoveryPolicy",
    "SavedStateHook",
    "Scaffold",
    "SecondOrStepTimer",
    "SessionCreator",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "ThroughputHook",
    "TimeLimitHook",
    "Timer",
    "Trigger",
    "WatchdogHook",
    "WorkerSessionCreator",
    "make_early_stopping_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


_theirs: Any = tf.compat.v1.train


def __getattr__(name: str) -> Any:
    if name.startswith("__") or not hasattr(_theirs, name):
        raise missing(__name__, name, __dir__())
    return getattr(_theirs, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in dir(_theirs) if not name.startswith("_"))})
