"""Checks that structure, shapes and dtypes of a variable stay as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from runhooks.arrays import to_numpy
from runhooks.graph.generators import has_generator_state
from runhooks.near_names import with_article

#: A shape, and a dtype of NumPy or, where that has none, of the array's library.
Form: TypeAlias = tuple[tuple[int, ...], Any]


def as_numbers(name: str, path: str, leaf: Any) -> np.ndarray[Any, Any]:
    """Return an array; TypeError if it is not of numbers."""
    check_unmasked(name, path, leaf)
    array = np.asarray(leaf)
    if array.dtype.hasobject or array.dtype.names or array.dtype.kind in "SUMm":
        is_array = isinstance(leaf, np.ndarray)
        kind = f"array of dtype {array.dtype}" if is_array else type(leaf).__name__
        raise TypeError(
            f"variable {describe(name, path)} must hold arrays of numbers or bools, or numbers, "
            f"got {with_article(kind)}{_cure(leaf)}"
        )
    return array


def check_unmasked(name: str, path: str, leaf: Any) -> None:
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"variable {describe(name, path)} cannot hold a masked array: give "
            "array.filled(number), and the mask on its own"
        )


def _cure(leaf: Any) -> str:
    if has_generator_state(leaf):
        return (
            ": give it as a parameter of its own, rng=generator, or leave out the parameter rng, "
            "which then gets a fresh one in each run"
        )
    if callable(leaf):
        return (
            ": hold its arrays in the variable and the rest in your function, as "
            "equinox.partition(model, equinox.is_array) does; rh.jax.graph takes a model whole"
        )
    return ""


def check_structure(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise ValueError unless ``new`` has the paths of ``old``."""
    if old.keys() != new.keys():
        missing, unexpected = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        hint = "" if new else "; does the function return it?"
        if new and all(path.isdecimal() for path in (*old, *new)):
            hint = f"; a list keeps its length, {len(old)}, and the new one has {len(new)}"
        raise ValueError(
            f"variable {name!r}: the new value has a different structure: it lacks {missing} and "
            f"has {unexpected} in addition{hint}"
        )


def check_leaf(name: str, path: str, old: Form, new: Form) -> None:
    """Raise ValueError unless the shape is the same, and the dtype fits into the old one."""
    if old[0] != new[0] or not _fits(new[1], old[1]):
        raise ValueError(
            f"variable {describe(name, path)} keeps its shape and dtype, {_text(old)}: the new "
            f"value is {_text(new)}; convert it where it is made"
        )


def check_new_leaf(name: str, path: str, old: Form, new: Form) -> None:
    """As ``check_leaf``, of what a run computed: raises for a float of fewer bits, too.

    But a single float32 may become a float64: it may have been a number of Python.
    """
    check_leaf(name, path, old, new)
    is_number = new[0] == () and str(new[1]).endswith("float32")
    if old[1] != new[1] and not is_number and is_inexact(old[1]) and is_inexact(new[1]):
        raise ValueError(
            f"variable {describe(name, path)} keeps its precision, {_text(old)}: the new value is "
            f"{_text(new)}, and has been rounded; compute it in {old[1]}"
        )


def is_inexact(dtype: Any) -> bool:
    """Whether a dtype, maybe of ml_dtypes, is of floats or complex numbers."""
    try:
        found = np.dtype(dtype)
    except TypeError:  # that of a random key, say
        return False
    return found.kind in "fc" or (found.kind == "V" and "float" in found.name)


def number_as(name: str, path: str, number: float, dtype: Any) -> Any:
    """Return a Python number as ``dtype``; ValueError if it does not fit."""
    takes_fractions = is_inexact(dtype)
    try:
        if isinstance(number, int) or takes_fractions:
            converted = np.array(number, dtype)[()]
            if takes_fractions or converted == number:  # int4 and its like wrap around
                return converted
    except OverflowError:
        pass
    raise ValueError(f"variable {describe(name, path)} is {dtype}, and cannot hold {number!r}")


def fitted(name: str, value: Any, form: Form) -> np.ndarray[Any, Any]:
    """Return a number, or any array, as one of ``form``; ValueError if it does not fit."""
    if isinstance(value, int | float) and not isinstance(value, np.generic):
        value = number_as(name, "", value, form[1])
    array = np.asarray(to_numpy(value))
    check_leaf(name, "", form, (array.shape, array.dtype))
    return array.astype(form[1])


def _fits(dtype: Any, into: Any) -> bool:
    try:
        return bool(dtype == into or np.can_cast(dtype, into, "safe"))
    except TypeError:  # that of a random key, say
        return False


def describe(name: str, path: str) -> str:
    """Return ``'state' at 'params/w'``."""
    return f"{name!r} at {path!r}" if path else repr(name)


def _text(form: Form) -> str:
    shape, dtype = form
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"
