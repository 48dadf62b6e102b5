"""Scalars: one number a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.arrays import is_array
from runhooks.arrays.registry import library_of
from runhooks.arrays.scalars import NUMBERS, read_number
from runhooks.events.format.event import scalar_entry
from runhooks.summary.kinds.real_numbers import keep
from runhooks.summary.message import Value
from runhooks.summary.tag_and_step import checked_tag


def scalar_value(tag: str, value: Any) -> Value:
    """Return ``value``, a number or an array of size 1, to be written as float32.

    It is read when the summary is written. NaN and infinities are written as they are.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is not of size 1.
    """
    return Value(tag, kept_number(tag, value), encode_scalar)


def encode_scalar(tag: str, value: Any) -> bytes:
    """Return the entry of a summary that holds ``value``, what ``kept_number`` has returned."""
    return scalar_entry(tag, read_number(value))


def kept_number(tag: str, value: Any) -> Any:
    """Return ``value`` as it is now. Raises what ``scalar_value`` does."""
    if type(value) in NUMBERS:
        return value
    number = library_of(value).number(value)
    if number is not None:
        return number
    if not is_array(value) and hasattr(value, "__float__"):  # a Decimal or Fraction
        return float(value)
    if value is None or isinstance(value, str | bytes | Mapping):
        raise TypeError(f"the value of scalar {tag!r} must be a number, got {_described(value)}")
    return keep(f"the value of scalar {tag!r}", value, _check)


def kept_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` by tag as they are now.

    Raises:
        TypeError: It is not a mapping, or a tag is not a str.
        ValueError: A tag is empty.
        TypeError, ValueError: As ``scalar_value``.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be a dict of numbers by tag, got {values!r}")
    return {checked_tag(tag): kept_number(tag, value) for tag, value in values.items()}


def _check(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if math.prod(shape) != 1:
        raise ValueError(f"{what} must be a single number, got an array of shape {shape}")


def _described(value: Any) -> str:
    if not isinstance(value, Mapping):
        return repr(value)
    return (
        f"a {type(value).__name__} with {list(value)}: write each with scalar, or all with scalars"
    )
