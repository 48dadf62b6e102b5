"""Precision and recall of a binary classifier, by threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays import host_form
from runhooks.events.format.proto import int_field
from runhooks.summary.kinds.real_numbers import as_float, finite_in, keep, read
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_ROUNDING = 1e-3  # by which a probability may be beyond its range
_LEAST_COUNT = 1e-7  # what is divided by is at least that, as in TensorBoard


def pr_curve_value(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Value:
    """Return how well ``predictions`` tell ``labels``, to be written as a precision-recall curve.

    A prediction counts as positive at threshold i if it is at least ``i / (num_thresholds - 1)``,
    and always if there is one threshold.

    Args:
        tag: The tag of the curve.
        labels: bools, or 0 and 1, of any shape.
        predictions: How likely each label is true, 0.0 to 1.0, of the same shape. Those that are
            not finite are left out, with a warning once for each tag.
        num_thresholds: How many thresholds, evenly from 0 to 1.
        weights: How much each counts, not negative, of the same shape; 1 if None.

    Raises:
        TypeError: ``labels`` or ``predictions`` is None, or one is not made of real numbers.
        ValueError: The shapes differ, or ``num_thresholds``, a whole number, is below 1. When the
            summary is written, if a number is out of its range.
    """
    arguments.given(labels=labels, predictions=predictions, num_thresholds=num_thresholds)
    arguments.whole(num_thresholds=num_thresholds)
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    kept = [
        keep(_name(name, tag), value) if value is not None else None
        for name, value in given.items()
    ]
    forms = [host_form(value) for value in kept if value is not None]
    _check_shapes(tag, [form[0] for form in forms if form is not None])
    return Value(tag, (*kept, num_thresholds), _encode)


def _name(argument: str, tag: str) -> str:
    return f"{argument} of pr_curve summary {tag!r}"


def _check_shapes(tag: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if len(set(shapes)) > 1:
        raise ValueError(
            f"labels, predictions and weights of pr_curve summary {tag!r} must have one shape, "
            f"got {', '.join(str(list(shape)) for shape in shapes)}"
        )


def _encode(tag: str, data: tuple[Any, Any, Any, int]) -> bytes:
    labels, predictions, weights, num_thresholds = data
    positive = read(_name("labels", tag), labels).astype(np.float64)
    likely = as_float(read(_name("predictions", tag), predictions))
    counted = np.ones(likely.shape) if weights is None else read(_name("weights", tag), weights)
    _check_shapes(tag, [positive.shape, likely.shape, counted.shape])
    finite = finite_in("pr_curve", tag, likely, "left out")
    shown = likely[finite]
    for name, right, rule, values in (
        ("labels", (positive == 0) | (positive == 1), "0 or 1", positive),
        ("predictions", abs(shown - 0.5) <= 0.5 + _ROUNDING, "from 0.0 to 1.0", shown),
        ("weights", np.isfinite(counted) & (counted >= 0), "finite and not negative", counted),
    ):
        if not np.all(right):
            wrong = values[~right].flat[0]
            raise ValueError(f"{_name(name, tag)} must be {rule}, got {wrong}")
    curve = _curve(positive[finite], shown, counted[finite], num_thresholds)
    metadata = SummaryMetadata("pr_curves", int_field(2, num_thresholds))
    return tensor_entry(tag, encode_tensor(tag, curve), metadata)


def _curve(
    positive: NDArray[np.float64],
    likely: NDArray[Any],
    counted: NDArray[Any],
    num_thresholds: int,
) -> NDArray[np.float32]:
    """Return ``[6, num_thresholds]``: four counts, the precision and the recall."""
    buckets = np.floor(np.clip(likely, 0, 1) * (num_thresholds - 1)).astype(np.int32)

    def counts_from(weights: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(buckets, weights, num_thresholds)[::-1].cumsum()[::-1]

    true_positives = counts_from(positive * counted)
    false_positives = counts_from((1 - positive) * counted)
    true_negatives = false_positives[0] - false_positives
    false_negatives = true_positives[0] - true_positives
    precision = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_positives)
    recall = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_negatives)
    rows = true_positives, false_positives, true_negatives, false_negatives, precision, recall
    return np.stack(rows).astype(np.float32)


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
    kept = [
        keep(f"{name} of {_counted_name(tag)}", row) for name, row in zip(_ROWS, rows, strict=True)
    ]
    shapes = [form[0] for form in map(host_form, kept) if form is not None]
    if len(set(shapes)) > 1:
        got = ", ".join(map(str, map(list, shapes)))
        raise ValueError(f"the rows of {_counted_name(tag)} must have one shape, got {got}")
    return Value(tag, (tuple(kept), int(num_thresholds)), _encode_counted)


def _counted_name(tag: str) -> str:
    return f"pr_curve summary {tag!r}"


def _encode_counted(tag: str, data: tuple[tuple[Any, ...], int]) -> bytes:
    kept, num_thresholds = data
    rows = [read(_counted_name(tag), row).ravel() for row in kept]
    metadata = SummaryMetadata("pr_curves", int_field(2, num_thresholds))
    return tensor_entry(tag, encode_tensor(tag, np.stack(rows).astype(np.float32)), metadata)
