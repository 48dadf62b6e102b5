"""What hooks ask of an estimator: any object that has what of this it is asked for.

As ``tf.estimator.Estimator`` had: ``model_dir``, ``eval_dir(name)``, ``config``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def eval_dir_of(estimator: Any, name: str | None = None) -> str | os.PathLike[str] | None:
    """Where it writes its evaluations of that ``name``; None if it cannot tell.

    By its ``eval_dir``, or else in its ``model_dir``.
    """
    eval_dir = getattr(estimator, "eval_dir", None)
    if callable(eval_dir):
        return eval_dir(name) if name else eval_dir()  # type: ignore[no-any-return]
    model_dir = getattr(estimator, "model_dir", None)
    if model_dir is None:
        return None
    return Path(model_dir) / (f"eval_{name}" if name else "eval")


def configured(estimator: Any, name: str) -> Any:
    """What its ``config`` says of ``name``; None if it says nothing."""
    return getattr(getattr(estimator, "config", None), name, None)
