"""Scalars: one number a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.events.scalar_values import read_number, scalar_entry
from runhooks.summary.address import checked_tag
from runhooks.summary.kinds.real_array import as_now
from runhooks.summary.message import Value


def scalar_value(tag: str, value: Any) -> Value:
    """Return ``value``, anything that holds exactly one real number, to be written as float32.

    It is read when the summary is written, which then raises ValueError if it is not of size 1
    and TypeError if it is no real number. NaN and infinities are written as they are.

    Raises TypeError for None, str and bytes.
    """
    return Value(tag, number_now(tag, value), _encode)


def number_now(tag: str, value: Any) -> Any:
    """Return ``value`` as ``as_now`` does. Raises TypeError for what is no number at a glance."""
    if value is None or isinstance(value, str | bytes):
        raise TypeError(f"the value of scalar {tag!r} must be a number, got {value!r}")
    return as_now(value)


def numbers_now(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` by tag, as ``number_now`` does each.

    Raises TypeError if it is no mapping, and what ``checked_tag`` raises.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be a dict of numbers by tag, got {values!r}")
    return {checked_tag(tag): number_now(tag, value) for tag, value in values.items()}


def _encode(tag: str, value: Any) -> bytes:
    return scalar_entry(tag, read_number(value))
