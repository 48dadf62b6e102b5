"""Tags and steps, checked at the call that gives them."""

from __future__ import annotations

import operator
from typing import Any

from runhooks.arrays.registry import NO_LIBRARY, library_of

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def text_tag(tag: Any) -> str:
    """Return ``tag``. Raises TypeError if it is not a str."""
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a str, got {tag!r}")
    return tag


def checked_tag(tag: Any) -> str:
    """Return ``tag``. Raises TypeError if it is not a str, ValueError if it is empty."""
    text = text_tag(tag)
    if not text:
        raise ValueError("tag must not be empty, got ''")
    return text


def step_for(tag: Any, step: Any) -> int:
    """Return ``step`` as an int, after a check of both."""
    return checked_step(step, repr(checked_tag(tag)))


def checked_step(step: Any, what: object) -> int:
    """Return ``step`` as an int; waits until a device has computed it.

    Args:
        step: Anything that can be an index, or an array of one integer.
        what: What has that step, for the message.

    Raises:
        TypeError: It is not an integer.
        ValueError: It takes more than 64 bits.
    """
    try:
        number = operator.index(step)
    except (TypeError, AttributeError):  # the other one comes from TensorFlow
        number = operator.index(_index(step, what))
    if not _LEAST <= number <= _MOST:
        raise ValueError(f"the step of {what} must fit in 64 bits, got {step!r}")
    return number


def step_or_zero(step: Any, what: object) -> int:
    """Return ``step`` as ``checked_step`` does, and 0 for None, as TensorFlow has it."""
    return 0 if step is None else checked_step(step, what)


def step_snapshot(step: Any, what: object) -> Any:
    """Return ``step`` as ``checked_step`` does, or as an array if a device still computes it."""
    if library_of(step) is NO_LIBRARY:
        return checked_step(step, what)
    index = _index(step, what)
    return checked_step(index, what) if type(index) is int else index


def _index(step: Any, what: object) -> Any:
    try:
        return library_of(step).index(step)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        hint = "give the number of the step" if step is None else "convert it with int(...)"
        raise TypeError(f"the step of {what} must be an integer, got {step!r}: {hint}") from None
