"""The names of ``tf.compat.v1.train`` that make sense on any graph."""

from runhooks.lazy import lazily


def _elsewhere(name: str) -> str:
    if name.endswith("Optimizer"):
        advice = "use an optimizer of optax or torch.optim in your step"
    elif name.endswith("_decay"):
        advice = "use a schedule of optax, or a scheduler of torch.optim"
    else:
        advice = "it has the names that make sense on any graph"
    return f": {advice}; for a tf.Graph, runhooks.tensorflow.train has all names of tf.train"


__getattr__, __dir__, __all__ = lazily(__name__, elsewhere=_elsewhere)
