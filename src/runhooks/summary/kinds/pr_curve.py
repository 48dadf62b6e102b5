"""Precision and recall of a binary classifier, by threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays import host_form
from runhooks.events.format.proto import int_field
from runhooks.summary.kinds.real_numbers import Kept, as_float, finite_in, keep
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_ROUNDING = 1e-3  # by which a probability may be beyond its range
_LEAST_COUNT = 1e-7  # what is divided by is at least that, as in TensorBoard


def pr_curve_value(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Value:
    """Return the precision-recall curve of ``predictions``.

    A prediction is positive at threshold i if it is at least ``i / (num_thresholds - 1)``, and
    always if there is one threshold.

    Args:
        tag: The tag.
        labels: bools, or 0 and 1, of any shape.
        predictions: How likely each label is true, 0.0 to 1.0, of the same shape; what is not
            finite is left out, with one warning per tag.
        num_thresholds: How many thresholds, evenly from 0 to 1.
        weights: How much each counts, not negative: of the same shape, or one number; None: 1.

    Raises:
        TypeError: ``labels`` or ``predictions`` is None, or one is not made of real numbers.
        ValueError: The shapes differ, or ``num_thresholds``, a whole number, is below 1; or, when
            the summary is written, a number is out of its range.
    """
    arguments.given(num_thresholds=num_thresholds)
    arguments.whole(num_thresholds=num_thresholds)
    weights = 1.0 if weights is None else weights
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    kept = [keep(f"{name} of {_name(tag)}", value) for name, value in given.items()]
    forms = [host_form(it.values) for it in kept]
    if forms[-1] is not None and not forms[-1][0]:
        del forms[-1]  # one weight for all
    _check_shapes(tag, [form[0] for form in forms if form is not None])
    return Value(tag, (*kept, num_thresholds), _encode)


def _name(tag: str) -> str:
    return f"pr_curve summary {tag!r}"


def _check_shapes(tag: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if len(set(shapes)) > 1:
        raise ValueError(
            f"labels, predictions and weights of {_name(tag)} must have one shape, "
            f"got {', '.join(str(list(shape)) for shape in shapes)}"
        )


def _encode(tag: str, data: tuple[Kept, Kept, Kept, int]) -> bytes:
    labels, predictions, weights, num_thresholds = data
    positive = labels.read().astype(np.float64)
    likely = as_float(predictions.read())
    counted = weights.read()
    if not counted.ndim:
        counted = np.broadcast_to(counted, likely.shape)
    _check_shapes(tag, [positive.shape, likely.shape, counted.shape])
    finite = finite_in("pr_curve", tag, likely, "left out")
    shown = likely[finite]
    for kept, right, rule, values in (
        (labels, (positive == 0) | (positive == 1), "0 or 1", positive),
        (predictions, abs(shown - 0.5) <= 0.5 + _ROUNDING, "from 0.0 to 1.0", shown),
        (weights, np.isfinite(counted) & (counted >= 0), "finite and not negative", counted),
    ):
        if not np.all(right):
            raise ValueError(f"{kept.what} must be {rule}, got {values[~right].flat[0]}")
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
