"""Precision and recall of a binary classifier, by threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.fields import int_field
from runhooks.summary.kinds.non_finite import finite_in
from runhooks.summary.kinds.real_array import as_float, as_now, read_real_array
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import Value
from runhooks.summary.metadata import SummaryMetadata, tensor_entry

_ROUNDING = 1e-3  # by which a probability may be beyond its range
_LEAST_COUNT = 1e-7  # what is divided by is at least that, as in TensorBoard


def pr_curve_value(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Value:
    """Return how well ``predictions`` tell ``labels``, to be written as a precision-recall curve.

    ``labels``: bools, or 0 and 1. ``predictions``: how likely each is true, 0.0 to 1.0; those that
    are not finite are left out, with a warning once for each tag. ``weights``: how much each
    counts, not negative, 1 if None. All of one shape, any. A prediction counts
    as positive at threshold i if it is at least ``i / (num_thresholds - 1)``.

    They are read when the summary is written, which raises ValueError if their shapes differ, or
    one is beyond its range. Raises TypeError if ``labels`` or ``predictions`` is None, ValueError
    if ``num_thresholds``, a whole number, is below 2.
    """
    arguments.given(labels=labels, predictions=predictions, num_thresholds=num_thresholds)
    arguments.whole(2, num_thresholds=num_thresholds)
    arrays = as_now(labels), as_now(predictions), as_now(weights)
    return Value(tag, (*arrays, num_thresholds), _encode)


def _encode(tag: str, data: tuple[Any, Any, Any, int]) -> bytes:
    labels, predictions, weights, num_thresholds = data
    positive = read_real_array(tag, labels).astype(np.float64)
    likely = as_float(read_real_array(tag, predictions))
    counted = np.ones(likely.shape) if weights is None else read_real_array(tag, weights)
    if not positive.shape == likely.shape == counted.shape:
        raise ValueError(
            f"labels, predictions and weights of pr_curve summary {tag!r} must have one shape, "
            f"got {list(positive.shape)}, {list(likely.shape)} and {list(counted.shape)}"
        )
    finite = finite_in("pr_curve", tag, likely, "left out")
    shown = likely[finite]
    for name, right, rule, values in (
        ("labels", (positive == 0) | (positive == 1), "0 or 1", positive),
        ("predictions", abs(shown - 0.5) <= 0.5 + _ROUNDING, "from 0.0 to 1.0", shown),
        ("weights", np.isfinite(counted) & (counted >= 0), "finite and not negative", counted),
    ):
        if not np.all(right):
            wrong = values[~right].flat[0]
            raise ValueError(f"{name} of pr_curve summary {tag!r} must be {rule}, got {wrong}")
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
