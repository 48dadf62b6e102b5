"""``runhooks.tensorflow``: sessions and hooks for programs that build a ``tf.Graph``.

A program changes one import, of ``tf.compat.v1.train`` or of ``tf.estimator``:

    from runhooks.tensorflow import estimator, train

The graph stays TensorFlow's, and so do its savers, summaries and checkpoints.
"""

from runhooks.engines import require_framework

require_framework("tensorflow")  # says what to install

from runhooks.tensorflow import estimator, train  # noqa: E402

__all__ = ["estimator", "train"]
