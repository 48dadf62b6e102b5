import itertools
from array import array
from collections import deque
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorboard.compat.proto import summary_pb2

from runhooks.summary import BUCKETS, Summary, histogram_counts, histogram_value
from tests.summary.conftest import Late

tags = (f"histogram {number}" for number in itertools.count())


def written(values: object) -> summary_pb2.HistogramProto:
    message = Summary([histogram_value(next(tags), values)]).SerializeToString()
    return summary_pb2.Summary.FromString(message).value[0].histo


def counted_again(values: np.ndarray, limits: list[float]) -> list[int]:
    """Count by comparing. A bucket keeps its edge nearest to zero and leaves the other out."""
    values = values.ravel()
    where = np.where(
        np.signbit(values),
        np.searchsorted(limits, values, side="left"),
        np.searchsorted(limits, values, side="right"),
    )
    return np.bincount(where, minlength=len(limits)).tolist()


normal = np.random.default_rng(0).normal(size=50_000).astype(np.float32)


@pytest.mark.parametrize(
    "values",
    [
        normal,
        normal * 1e-30,
        np.float32(1) + normal / 20,
        np.exp(normal * 10),
        np.maximum(normal, 0),
        np.zeros(5, np.float32),
        np.float32([-0.0, 0.0, 1e-45, -1e-45]),
        np.finfo(np.float32).max * np.float32([1, -1, 0.5]),
        normal[::3],
        normal.reshape(100, -1).T,
        np.tile(normal, 6),  # more than a block
    ],
)
def test_counts_are_those_of_the_edges_written(values: np.ndarray) -> None:
    histogram = written(values)
    assert list(histogram.bucket) == counted_again(values, histogram.bucket_limit)
    assert histogram.num == values.size
    assert (histogram.min, histogram.max) == (values.min(), values.max())
    wide = values.astype(np.float64)
    assert histogram.sum == pytest.approx(wide.sum())
    assert histogram.sum_squares == pytest.approx((wide * wide).sum(), rel=1e-6, abs=0)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(hnp.arrays(np.float32, st.integers(1, 300), elements=finite))
def test_buckets_rise_and_hold_what_they_should(values: np.ndarray) -> None:
    histogram = written(values)
    limits, counts = np.array(histogram.bucket_limit), np.array(histogram.bucket)
    assert (np.diff(limits) > 0).all()
    assert np.isfinite(limits).all()
    assert len(limits) <= 512
    assert counts[0] > 0
    assert counts[-1] > 0
    assert not ((counts[1:] == 0) & (counts[:-1] == 0)).any()
    assert histogram.min <= limits[0]
    assert histogram.max <= limits[-1]
    assert counts.tolist() == counted_again(values, limits)


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.longdouble, np.int8, np.uint64, np.bool_, ml_dtypes.bfloat16],
)
def test_any_real_dtype_will_do(dtype: type) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    histogram = written(values)
    assert [count for count in histogram.bucket if count] == [2, 4]
    assert (histogram.min, histogram.max, histogram.sum, histogram.num) == (0, 1, 4, 6)


def test_numbers_beyond_float32_are_counted() -> None:
    histogram = written(np.array([-1e300, 1e300, 1.0]))
    assert [count for count in histogram.bucket if count] == [1, 1, 1]
    assert (histogram.min, histogram.max) == (-1e300, 1e300)
    assert histogram.bucket_limit[-1] >= 1e300


@pytest.mark.parametrize("values", [[], np.zeros((0, 3)), np.array([np.nan])])
def test_nothing_gives_an_empty_histogram(values: object) -> None:
    histogram = written(values)
    assert (list(histogram.bucket), histogram.num) == ([], 0)
    assert (histogram.min, histogram.max, histogram.sum) == (0, 0, 0)


def test_nan_and_infinities_are_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = np.array([1.0, np.nan, 2.0, np.inf, -np.inf, -np.nan])
    for _ in range(3):
        message = Summary([histogram_value("gradients", values)]).SerializeToString()
    value, *counts = summary_pb2.Summary.FromString(message).value
    histogram = value.histo
    assert (histogram.num, histogram.min, histogram.max, histogram.sum) == (2, 1, 2, 3)
    assert [(it.tag, it.simple_value) for it in counts] == [
        *(("gradients/nan_count", 2), ("gradients/inf_count", 2))
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "histogram 'gradients' has 2 NaN and 2 infinite values, left out (said once for a tag)"
    ]


@pytest.mark.parametrize("values", [1j, "abc", [None]])
def test_what_is_no_real_number_is_refused(values: object) -> None:
    with pytest.raises(TypeError, match="'weights' must hold real numbers"):
        histogram_value("weights", values)
    with pytest.raises(TypeError, match="'weights' must hold real numbers"):
        Summary([histogram_value("weights", Late(values))]).SerializeToString()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_jax_counts_on_the_device_what_numpy_counts(dtype: type) -> None:
    values = jnp.asarray(normal * 3).astype(dtype)
    count = jax.jit(
        partial(histogram_counts, xp=jnp, bincount=partial(jnp.bincount, length=BUCKETS))
    )
    if dtype == jnp.float32:
        values = values.at[:2].set(jnp.array([jnp.nan, jnp.inf]))
    ours, theirs = written(np.asarray(values)), written(count(values))
    assert list(theirs.bucket) == list(ours.bucket)
    assert list(theirs.bucket_limit) == list(ours.bucket_limit)
    assert (theirs.min, theirs.max, theirs.num) == (ours.min, ours.max, ours.num)
    assert theirs.sum == pytest.approx(ours.sum, rel=1e-4)
    assert theirs.sum_squares == pytest.approx(ours.sum_squares, rel=1e-4)


@pytest.mark.parametrize("kind", [lambda it: array("B", it), deque, memoryview])
def test_what_only_numpy_can_read_has_the_values_of_the_call(kind) -> None:
    numbers = bytearray([1, 2, 3])
    values = kind(numbers)
    value = histogram_value("weights", values)
    if kind is not memoryview:
        values[0] = 9
    numbers[0] = 9
    histogram = summary_pb2.Summary.FromString(Summary([value]).SerializeToString()).value[0].histo
    assert (histogram.num, histogram.max) == (3, 3)
