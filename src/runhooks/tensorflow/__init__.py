"""``runhooks.tensorflow``: sessions and hooks for programs that build a ``tf.Graph``.

A program of ``tf.compat.v1.train`` changes one import:

    from runhooks.tensorflow import train

One that says ``tf.estimator.SessionRunHook`` imports ``estimator`` from here. The graph stays
TensorFlow's, and so do its savers, summaries and checkpoints.
"""

from runhooks.engines import require_framework

require_framework("tensorflow")  # says what to install, if it is not

from runhooks.tensorflow import estimator, train  # noqa: E402

__all__ = ["estimator", "train"]
