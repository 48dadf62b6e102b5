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

from runhooks import errors, summary, train
from runhooks.checkpoint import Saver, latest_checkpoint
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
)
from runhooks.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    LoggingTensorHook,
    ProgressHook,
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
    RecoveryPolicy,
    Scaffold,
    Session,
    SessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from runhooks.trigger import Due, SecondOrStepTimer
from runhooks.version import __version__

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "Due",
    "Graph",
    "GraphKeys",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "Operation",
    "ProgressHook",
    "RecoveryPolicy",
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
    "Variable",
    "WorkerSessionCreator",
    "__version__",
    "call",
    "errors",
    "get_default_graph",
    "group",
    "inputs",
    "latest_checkpoint",
    "name_scope",
    "placeholder",
    "summary",
    "train",
]
