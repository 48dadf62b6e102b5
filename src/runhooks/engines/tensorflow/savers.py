"""What can save a ``tf.Graph``."""

from __future__ import annotations

from typing import Any

from runhooks.checkpoint import Saver


def check_saver(saver: Any) -> None:
    """Raise TypeError for the saver of the other engines."""
    if isinstance(saver, Saver):
        raise TypeError(
            "the saver must be a tf.compat.v1.train.Saver, or in a Scaffold a tf.train.Checkpoint, "
            f"where the graph is TensorFlow's, got {saver!r}: rh.Saver is for the other engines"
        )
