"""Scalars that say how TensorBoard shows them, or that are tensors, as TensorFlow 2 writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks.arrays.scalars import read_number
from runhooks.events.format import wire
from runhooks.summary.kinds.scalar import kept_number
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry

_SIMPLE_VALUE, _METADATA = 2, 9
_SCALARS = SummaryMetadata("scalars")


def described_scalar_value(tag: str, value: Any, metadata: SummaryMetadata) -> Value:
    """Return ``value``, to be written as float32 with ``metadata``. Raises as ``scalar_value``."""
    return Value(tag, (kept_number(tag, value), metadata), _encode_described)


def tensor_scalar_value(tag: str, value: Any, *, double_precision: bool = False) -> Value:
    """Return ``value``, to be written as a tensor of one float32, or one float64.

    Raises what ``scalar_value`` does.
    """
    kept = kept_number(tag, value)
    return Value(tag, (kept, "float64" if double_precision else "float32"), _encode_tensor)


def _encode_described(tag: str, data: tuple[Any, SummaryMetadata]) -> bytes:
    kept, metadata = data
    content = wire.float_field(_SIMPLE_VALUE, read_number(kept))
    return entry(tag, content + wire.bytes_field(_METADATA, metadata.SerializeToString()))


def _encode_tensor(tag: str, data: tuple[Any, str]) -> bytes:
    kept, dtype = data
    with np.errstate(over="ignore"):
        number = np.array(read_number(kept)).astype(dtype)
    return tensor_entry(tag, encode_tensor(tag, number), _SCALARS)
