"""What of ``tf.compat.v1.train`` runhooks does not replace."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_TRAIN = tf.compat.v1.train


def train_name(name: str, module: str) -> Any:
    """``tf.compat.v1.train.<name>``; AttributeError, as of ``module``, if there is none."""
    if name.startswith("__") or not hasattr(_TRAIN, name):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(_TRAIN, name)


def names_of_train() -> list[str]:
    """The public names of ``tf.compat.v1.train``."""
    return [name for name in dir(_TRAIN) if not name.startswith("_")]
