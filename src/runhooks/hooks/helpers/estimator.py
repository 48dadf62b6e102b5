"""Attributes of an estimator that hooks use, each of them optional.

They are those of ``tf.estimator.Estimator``: ``model_dir``, ``eval_dir(name)``, ``config``.
"""

from __future__ import annotations

import os
from typing import Any

from runhooks.events.place import inside


def eval_dir_of(estimator: Any, name: str | None = None) -> str | os.PathLike[str] | None:
    """Return the directory of the evaluations called ``name``; None if it is unknown.

    It is that of ``eval_dir()``, or else one in ``model_dir``.
    """
    eval_dir = getattr(estimator, "eval_dir", None)
    if callable(eval_dir):
        return eval_dir(name) if name else eval_dir()  # type: ignore[no-any-return]
    model_dir = getattr(estimator, "model_dir", None)
    if model_dir is None:
        return None
    return inside(model_dir, f"eval_{name}" if name else "eval")


def configured(estimator: Any, name: str) -> Any:
    """Return the attribute ``name`` of the estimator's ``config``; None if there is none."""
    return getattr(getattr(estimator, "config", None), name, None)
