"""What a variable's new value must have: the structure, shapes and dtypes it had before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def check_structure(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise ValueError unless the leaves by path ``new`` stand at the same paths as ``old``."""
    if old.keys() != new.keys():
        missing, unexpected = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        raise ValueError(
            f"variable {name!r} keeps the structure it was created with: "
            f"the new value lacks {missing} and has {unexpected} in addition"
        )


def check_leaf(name: str, path: str, old: Any, new: Any) -> None:
    """Raise ValueError unless ``new`` has the shape of ``old``, and a dtype that goes into its."""
    if old.shape != new.shape or not fits(new.dtype, old.dtype):
        raise ValueError(
            f"variable {describe(name, path)} keeps its shape and dtype, "
            f"{old.dtype}{list(old.shape)}: the new value is {new.dtype}{list(new.shape)}"
        )


def fits(dtype: Any, into: Any) -> bool:
    """Whether values of ``dtype`` become ``into`` without loss."""
    if dtype == into:
        return True
    try:
        return bool(np.can_cast(dtype, into, "safe"))
    except TypeError:  # a dtype that NumPy does not know, such as a random key's
        return False


def describe(name: str, path: str) -> str:
    """A leaf of a variable, for messages: ``'state' at 'params/w'``."""
    return f"{name!r} at {path!r}" if path else repr(name)
