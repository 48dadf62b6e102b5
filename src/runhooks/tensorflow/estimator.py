"""The hooks of ``tf.estimator``, which TensorFlow 2.16 has removed.

A program that says ``tf.estimator.SessionRunHook`` changes one import:

    from runhooks.tensorflow import estimator

The rest of ``tf.estimator`` is replaced by a loop: see the page "From TensorFlow 1 and
tf.estimator".
"""

from types import SimpleNamespace
from typing import Any

from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
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
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from runhooks.near_names import suggestion
from runhooks.trigger import SecondOrStepTimer

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "experimental",
]

#: The hooks of ``tf.estimator.experimental``.
experimental = SimpleNamespace(
    make_early_stopping_hook=make_early_stopping_hook,
    stop_if_higher_hook=stop_if_higher_hook,
    stop_if_lower_hook=stop_if_lower_hook,
    stop_if_no_decrease_hook=stop_if_no_decrease_hook,
    stop_if_no_increase_hook=stop_if_no_increase_hook,
)

#: What else programs use of ``tf.estimator``.
GONE = {
    *("Estimator", "EstimatorSpec", "EvalSpec", "TrainSpec", "RunConfig", "ModeKeys", "inputs"),
    *("train_and_evaluate", "Exporter", "BestExporter", "FinalExporter", "LatestExporter"),
}


def missing(module: str, name: str, near: list[str]) -> AttributeError:
    """Return the error for a ``name`` that ``module`` lacks."""
    hint = "" if name.startswith("_") else suggestion(name, near)
    if name == "InMemoryEvaluatorHook":
        hint = ": use EvaluationHook, which evaluates in the graph of the training"
    elif name in GONE:
        hint = (
            ": tf.estimator is gone from TensorFlow 2.16, and its hooks alone are here; the page "
            "'From TensorFlow 1 and tf.estimator' shows the loop that replaces the rest"
        )
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __all__)
