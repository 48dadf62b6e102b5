"""TensorFlow's session-run hooks for every training loop.

A graph holds the user's own functions, a session runs it step by step, and hooks ride along:

    import runhooks as rh

    graph = rh.Graph(engine="jax")
    with graph.as_default():
        ...
    with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir="runs/a") as sess:
        while not sess.should_stop():
            sess.run(train_op, feed_dict={...})

No framework is imported before a graph of its engine is made.
"""

from typing import TYPE_CHECKING

from runhooks import engines as engines  # where graphs find engines, default graphs and ranks
from runhooks.lazy import lazily
from runhooks.plain import graph
from runhooks.version import __version__

# A program loads what it uses, and none of the frameworks.
if TYPE_CHECKING:
    from runhooks import arrays, errors, events, summary, train
    from runhooks import bridges as bridges
    from runhooks import jax as jax
    from runhooks import tensorboard as tensorboard
    from runhooks import torch as torch
    from runhooks.checkpoint import (
        BestCheckpoint,
        InitFrom,
        KeepBest,
        KeepEvery,
        KeepLast,
        KeepSteps,
        Saver,
        best_checkpoint,
        latest_checkpoint,
    )
    from runhooks.checkpoint.load import load
    from runhooks.checkpoint.weights import export
    from runhooks.contract import (
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
    )
    from runhooks.graph import (
        Graph,
        GraphKeys,
        Operation,
        Tensor,
        Variable,
        call,
        get_default_graph,
        group,
        inputs,
        name_scope,
        placeholder,
        random_key,
    )
    from runhooks.hooks import (
        CheckpointSaverHook,
        CheckpointSaverListener,
        EmaHook,
        EvaluationHook,
        FeedFnHook,
        FinalOpsHook,
        GarbageCollectionHook,
        GlobalStepWaiterHook,
        HookTimesHook,
        LoggingTensorHook,
        MemoryHook,
        NanTensorHook,
        ProfilerHook,
        ProgressHook,
        RecoveryCounterHook,
        ReduceOnPlateauHook,
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
        Scaffold,
        Session,
        SessionCreator,
        SingularMonitoredSession,
        WorkerSessionCreator,
    )
    from runhooks.training import MonitoredTrainingSession
    from runhooks.trigger import Due, SecondOrStepTimer, Timer, Trigger
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "runhooks": [
                "arguments",
                "arrays",
                "bridges",
                "checkpoint",
                "clock",
                "contexts",
                "contract",
                "errors",
                "events",
                "hooks",
                "jax",
                "ranks",
                "session",
                "summary",
                "tensorboard",
                "torch",
                "train",
                "training",
                "trigger",
            ]
        },
        others=[
            "runhooks.graph",
            "runhooks.contract",
            "runhooks.hooks",
            "runhooks.trigger",
            "runhooks.session",
            "runhooks.training",
            "runhooks.checkpoint",
        ],
        beside=["runhooks.errors", "runhooks.tensorboard", "runhooks.summary"],
    )

__all__ = [
    "BestCheckpoint",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "Due",
    "EmaHook",
    "EvaluationHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GarbageCollectionHook",
    "GlobalStepWaiterHook",
    "Graph",
    "GraphKeys",
    "HookTimesHook",
    "InitFrom",
    "KeepBest",
    "KeepEvery",
    "KeepLast",
    "KeepSteps",
    "LoggingTensorHook",
    "LooperThread",
    "MemoryHook",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanTensorHook",
    "Operation",
    "ProfilerHook",
    "ProgressHook",
    "RecoveryCounterHook",
    "RecoveryPolicy",
    "ReduceOnPlateauHook",
    "SavedStateHook",
    "Saver",
    "Scaffold",
    "SecondOrStepTimer",
    "Session",
    "SessionCreator",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Tensor",
    "ThroughputHook",
    "TimeLimitHook",
    "Timer",
    "Trigger",
    "Variable",
    "WatchdogHook",
    "WorkerSessionCreator",
    "__version__",
    "arrays",
    "best_checkpoint",
    "call",
    "errors",
    "events",
    "export",
    "get_default_graph",
    "graph",
    "group",
    "inputs",
    "latest_checkpoint",
    "load",
    "make_early_stopping_hook",
    "name_scope",
    "placeholder",
    "random_key",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "summary",
    "train",
]
