"""Precision-recall curves that the caller has counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks import arguments
from runhooks.arrays import host_form
from runhooks.events.format.wire import int_field
from runhooks.summary.kinds.real_numbers import keep, read
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_ROWS = (
    "true_positive_counts",
    "false_positive_counts",
    "true_negative_counts",
    "false_negative_counts",
    "precision",
    "recall",
)


def counted_pr_curve_value(tag: str, rows: tuple[Any, ...], num_thresholds: int = 127) -> Value:
    """Return a precision-recall curve, to be written as float32.

    Args:
        tag: The tag of the curve.
        rows: By threshold, ``[n]`` each: true positives, false positives, true negatives, false
            negatives, precision, recall.
        num_thresholds: How many thresholds the curve is shown with.

    Raises:
        ValueError: The rows differ in shape, or ``num_thresholds`` is below 1.
        TypeError: A row is not made of real numbers.
    """
    arguments.whole(num_thresholds=num_thresholds)
    kept = [keep(f"{name} of {_name(tag)}", row) for name, row in zip(_ROWS, rows, strict=True)]
    shapes = [form[0] for form in map(host_form, kept) if form is not None]
    if len(set(shapes)) > 1:
        got = ", ".join(map(str, map(list, shapes)))
        raise ValueError(f"the rows of {_name(tag)} must have one shape, got {got}")
    return Value(tag, (tuple(kept), int(num_thresholds)), _encode)


def _name(tag: str) -> str:
    return f"pr_curve summary {tag!r}"


def _encode(tag: str, data: tuple[tuple[Any, ...], int]) -> bytes:
    kept, num_thresholds = data
    rows = [read(_name(tag), row).ravel() for row in kept]
    metadata = SummaryMetadata("pr_curves", int_field(2, num_thresholds))
    return tensor_entry(tag, encode_tensor(tag, np.stack(rows).astype(np.float32)), metadata)
