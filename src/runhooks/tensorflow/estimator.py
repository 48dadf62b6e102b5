"""The hooks of ``tf.estimator``."""

from types import SimpleNamespace

from runhooks.hooks import early_stopping
from runhooks.lazy import lazily

experimental = SimpleNamespace(
    make_early_stopping_hook=early_stopping.make_early_stopping_hook,
    stop_if_higher_hook=early_stopping.stop_if_higher_hook,
    stop_if_lower_hook=early_stopping.stop_if_lower_hook,
    stop_if_no_decrease_hook=early_stopping.stop_if_no_decrease_hook,
    stop_if_no_increase_hook=early_stopping.stop_if_no_increase_hook,
)

_GONE = {
    *("Estimator", "EstimatorSpec", "EvalSpec", "TrainSpec", "RunConfig", "ModeKeys", "inputs"),
    *("train_and_evaluate", "Exporter", "BestExporter", "FinalExporter", "LatestExporter"),
}


def gone(name: str) -> str:
    if name == "InMemoryEvaluatorHook":
        return ": use EvaluationHook, which evaluates in the graph of the training"
    if name not in _GONE:
        return ""
    return (
        ": tf.estimator is gone from TensorFlow 2.16, and its hooks alone are here; the page 'From "
        "TensorFlow 1 and tf.estimator' shows the loop that replaces the rest"
    )


__getattr__, __dir__, __all__ = lazily(__name__, elsewhere=gone)
__all__ += ["experimental"]
