"""Where a value belongs, its tag and its step, checked when they are given."""

from __future__ import annotations

import operator
from typing import Any

from runhooks.summary.kinds.real_array import as_now

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_INTEGERS = "iu"


def checked_tag(tag: Any) -> str:
    """Return ``tag``. Raises TypeError if it is no str, ValueError if it is empty."""
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a str, got {tag!r}")
    if not tag:
        raise ValueError("tag must not be empty, got ''")
    return tag


def address(tag: Any, step: Any) -> int:
    """Return ``step`` as an int; check ``tag`` too."""
    return checked_step(step, repr(checked_tag(tag)))


def checked_step(step: Any, what: object) -> int:
    """Return ``step`` as an int; ``what`` it is the step of.

    It is anything that can be an index, or an array of one integer, which is waited for.

    Raises TypeError for anything else, ValueError if it takes more than 64 bits.
    """
    try:
        number = operator.index(step)
    except (TypeError, AttributeError):  # the other one comes from TensorFlow
        number = _element(step, what)
    if not _LEAST <= number <= _MOST:
        raise ValueError(f"the step of {what} must fit in 64 bits, got {step!r}")
    return number


def global_step(step: Any, what: object) -> int:
    """Return ``step`` as ``checked_step`` does, and 0 for None, as TensorFlow has it."""
    return 0 if step is None else checked_step(step, what)


def step_now(step: Any, what: object) -> Any:
    """Return ``step`` as ``checked_step`` does; one that JAX still computes as an array of it."""
    if hasattr(step, "is_deleted") and step.size == 1 and step.dtype.kind in _INTEGERS:
        return as_now(step.reshape(()))
    return checked_step(step, what)


def _element(step: Any, what: object) -> int:
    try:
        array = step.numpy() if hasattr(step, "numpy") else step
        return operator.index(array.item())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        hint = "give the number of the step" if step is None else "convert it with int(...)"
        raise TypeError(f"the step of {what} must be an integer, got {step!r}: {hint}") from None
