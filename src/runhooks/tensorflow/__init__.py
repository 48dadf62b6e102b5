"""``runhooks.tensorflow``: ``train`` and ``estimator`` for programs that build a ``tf.Graph``."""

from runhooks.engines import require_framework

require_framework("tensorflow")  # says what to install

from runhooks.tensorflow import estimator, train  # noqa: E402

__all__ = ["estimator", "train"]
