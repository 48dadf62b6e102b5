"""Names of NumPy's dtypes, those of ml_dtypes (bfloat16, float8) among them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Return a name that ``dtype_named`` turns back into ``dtype``.

    None if there is none, as for objects and records.
    """
    return next((name for name in (dtype.str, dtype.name) if _is_name_of(name, dtype)), None)


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype called ``name``; ml_dtypes is imported only for a dtype of its own.

    Raises:
        TypeError: There is none, or its items are Python objects: a file cannot hold these.
        ImportError: ml_dtypes is needed and not installed.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes  # installed with each framework that makes such arrays

        if not hasattr(ml_dtypes, name):
            raise
        dtype = np.dtype(getattr(ml_dtypes, name))
    if dtype.hasobject:
        raise TypeError(f"an array of dtype {name!r} would hold Python objects, not bytes")
    return dtype


def is_same_kind(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether both are floats, both integers, both complex numbers, or the same."""
    return one == other or (_kind(one) == _kind(other) and _kind(one) != "")


def _kind(dtype: np.dtype[Any]) -> str:
    match = re.match(r"bfloat|float|u?int|complex", dtype.name)
    return match[0].lstrip("bu") if match else ""


def _is_name_of(name: str, dtype: np.dtype[Any]) -> bool:
    try:
        return dtype_named(name) == dtype
    except (TypeError, ImportError):
        return False
