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

from runhooks import engines as engines  # for graphs
from runhooks.lazy import lazily
from runhooks.plain import graph as graph
from runhooks.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazily(
    __name__,
    modules=(
        *("arguments", "bridges", "checkpoint", "clock", "contract", "hooks", "jax"),
        *("ranks", "session", "tensorboard", "torch", "training", "trigger"),
    ),
    beside=("runhooks.errors", "runhooks.tensorboard", "runhooks.summary"),
)
