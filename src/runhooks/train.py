"""The names of ``tf.compat.v1.train`` that make sense on any graph.

Sessions, hooks, coordinators, the global step, savers; not optimizers, queues and servers.
"""

from typing import TYPE_CHECKING

from runhooks.lazy import lazily

if TYPE_CHECKING:
    from runhooks.checkpoint import Saver, latest_checkpoint
    from runhooks.contract import (
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
    )
    from runhooks.graph.build import (
        create_global_step,
        get_global_step,
        get_or_create_global_step,
        global_step,
    )
    from runhooks.hooks import (
        CheckpointSaverHook,
        CheckpointSaverListener,
        FeedFnHook,
        FinalOpsHook,
        GlobalStepWaiterHook,
        LoggingTensorHook,
        NanLossDuringTrainingError,
        NanTensorHook,
        ProfilerHook,
        StepCounterHook,
        StopAtStepHook,
        SummarySaverHook,
    )
    from runhooks.session import (
        ChiefSessionCreator,
        Coordinator,
        LooperThread,
        MonitoredSession,
        Scaffold,
        SessionCreator,
        SingularMonitoredSession,
        WorkerSessionCreator,
    )
    from runhooks.training import MonitoredTrainingSession
    from runhooks.trigger import SecondOrStepTimer
else:

    def _elsewhere(name: str) -> str:
        if name.endswith("Optimizer"):
            advice = "use an optimizer of optax or torch.optim in your step"
        elif name.endswith("_decay"):
            advice = "use a schedule of optax, or a scheduler of torch.optim"
        else:
            advice = "it has the names that make sense on any graph"
        return f": {advice}; for a tf.Graph, runhooks.tensorflow.train has all names of tf.train"

    __getattr__, __dir__ = lazily(
        __name__,
        others=[
            "runhooks.graph.build",
            "runhooks.contract",
            "runhooks.hooks",
            "runhooks.trigger",
            "runhooks.session",
            "runhooks.training",
            "runhooks.checkpoint",
        ],
        elsewhere=_elsewhere,
    )

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
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
