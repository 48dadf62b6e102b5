"""``NanLossDuringTrainingError``, as programs of TensorFlow catch it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runhooks import errors

_Theirs: Any = tf.compat.v1.train.NanLossDuringTrainingError


class NanLossDuringTrainingError(errors.NanLossDuringTrainingError, _Theirs):  # type: ignore[misc]
    """That of runhooks and that of TensorFlow."""
