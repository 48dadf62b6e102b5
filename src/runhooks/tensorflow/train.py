"""The names of ``tf.compat.v1.train``, and the hooks that ``tf.estimator`` had.

What runhooks lacks is TensorFlow's own.
"""

from typing import Any

import tensorflow as tf

from runhooks.errors import register_end_of_input
from runhooks.lazy import lazily
from runhooks.tensorflow.estimator import gone

_theirs: Any = tf.compat.v1.train

# A coordinator is used without a session of ours, too.
register_end_of_input(tf.errors.OutOfRangeError)

_ours, _, __all__ = lazily(__name__, elsewhere=gone)


def __getattr__(name: str) -> Any:
    if name in __all__ or name.startswith("__") or not hasattr(_theirs, name):
        return _ours(name)
    return getattr(_theirs, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in dir(_theirs) if not name.startswith("_"))})
