"""The names of ``tf.compat.v1.train``, for code that was written against them."""

from runhooks.checkpoint import Saver, latest_checkpoint
from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.graph.global_step import (
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from runhooks.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    LoggingTensorHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from runhooks.session import (
    ChiefSessionCreator,
    Coordinator,
    LooperThread,
    MonitoredSession,
    MonitoredTrainingSession,
    Scaffold,
    SessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from runhooks.trigger import SecondOrStepTimer

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "Saver",
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
    "WorkerSessionCreator",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "latest_checkpoint",
]
