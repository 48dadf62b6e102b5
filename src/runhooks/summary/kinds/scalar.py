"""Scalars: one number a step."""

from __future__ import annotations

from typing import Any

from runhooks.events import wire
from runhooks.summary.kinds.real_array import as_now, read_real_array
from runhooks.summary.message import SIMPLE_VALUE, Value, entry


def scalar_value(tag: str, value: Any) -> Value:
    """Return ``value``, anything that holds exactly one real number, to be written as float32.

    It is read when the summary is written, which then raises ValueError if it is not of size 1
    and TypeError if it is no real number. NaN and infinities are written as they are.
    """
    return Value(tag, as_now(value), _encode)


def _encode(tag: str, value: Any) -> bytes:
    if isinstance(value, int):  # it may be larger than any of NumPy's
        value = float(value)
    elif type(value) is not float:
        array = read_real_array(tag, value)
        if array.size != 1:
            raise ValueError(
                f"the value of scalar summary {tag!r} must be a single number, "
                f"got an array of shape {array.shape}"
            )
        value = float(array.reshape(()))
    return entry(tag, wire.float_field(SIMPLE_VALUE, value))
