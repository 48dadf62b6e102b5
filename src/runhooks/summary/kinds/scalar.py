"""Scalars: one number a step, alone or with what TensorBoard shall know of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.arrays import is_array
from runhooks.arrays.registry import library_of
from runhooks.arrays.values import NUMBERS, read_number
from runhooks.events.format import proto
from runhooks.events.format.event import scalar_entry
from runhooks.summary.kinds.real_numbers import keep
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, checked_tag, entry, tensor_entry

_SIMPLE_VALUE = 2


def scalar_value(
    tag: str, value: Any, metadata: SummaryMetadata | None = None, dtype: str | None = None
) -> Value:
    """Return ``value``, a number or an array of size 1, to be written as float32.

    It is read when the summary is written. NaN and infinities are written as they are.

    Args:
        tag: Its tag.
        value: The number.
        metadata: How TensorBoard shows it, if not as usual.
        dtype: ``"float32"`` or ``"float64"``, to write it as a tensor, as TensorFlow 2 does, with
            ``metadata``; None: as a number.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is not of size 1.
    """
    kept = kept_number(tag, value)
    if metadata is None:
        return Value(tag, kept, encode_scalar)
    return Value(tag, (kept, metadata, dtype), _encode_described)


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


def _encode_described(tag: str, data: tuple[Any, SummaryMetadata, str | None]) -> bytes:
    kept, metadata, dtype = data
    number = read_number(kept)
    if dtype is None:
        return entry(tag, proto.float_field(_SIMPLE_VALUE, number), metadata)
    with np.errstate(over="ignore"):
        array = np.array(number).astype(dtype)
    return tensor_entry(tag, encode_tensor(tag, array), metadata)
