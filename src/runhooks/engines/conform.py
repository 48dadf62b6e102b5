"""What a variable's new value must have: the structure, shapes and dtypes it had before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def by_path(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The leaves by path; ValueError if two have one, as in ``{"a/b": x, "a": {"b": y}}``."""
    found: dict[str, Any] = {}
    for path, leaf in leaves:
        if path in found:
            raise ValueError(f"two leaves of one value have the path {path!r}: rename a key")
        found[path] = leaf
    return found


def check_structure(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise ValueError unless the leaves by path ``new`` stand at the same paths as ``old``."""
    if old.keys() != new.keys():
        missing, unexpected = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        hint = "" if new else "; does the function return it?"
        raise ValueError(
            f"variable {name!r} keeps the structure it was created with: "
            f"the new value lacks {missing} and has {unexpected} in addition{hint}"
        )


def check_leaf(name: str, path: str, old: Any, new: Any) -> None:
    """Raise ValueError unless ``new`` has the shape of ``old``, and a dtype that goes into its."""
    if old.shape != new.shape or not fits(new.dtype, old.dtype):
        raise ValueError(
            f"variable {describe(name, path)} keeps its shape and dtype, "
            f"{old.dtype}{list(old.shape)}: the new value is {new.dtype}{list(new.shape)}; "
            "convert it where it is made, with .astype for example"
        )


def number_as(name: str, path: str, number: float, dtype: Any) -> Any:
    """A Python number, which has no dtype of its own, as ``dtype``.

    Raises ValueError if it does not fit: a fraction into integers, or too large.
    """
    takes_fractions = np.dtype(dtype).kind in "fcV"
    try:
        if isinstance(number, int) or takes_fractions:
            return np.array(number, dtype)[()]
    except OverflowError:
        pass
    raise ValueError(f"variable {describe(name, path)} is {dtype}, and cannot hold {number!r}")


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
