import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.pr_curve import summary as theirs
from tensorboard.util.tensor_util import make_ndarray

from runhooks.summary import Summary, pr_curve_value
from tests.summary.conftest import Late


def written(*args: object, **options: object) -> summary_pb2.Summary.Value:
    message = Summary([pr_curve_value("digit", *args, **options)]).SerializeToString()
    return summary_pb2.Summary.FromString(message).value[0]


def curve(*args: object, **options: object) -> np.ndarray:
    return make_ndarray(written(*args, **options).tensor)


probabilities = st.floats(0, 1, width=32)


@settings(deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 60), elements=probabilities),
    st.integers(1, 200),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_it_is_tensorboards_curve(predictions, num_thresholds, random, weighted) -> None:
    labels = np.array([random.random() < 0.5 for _ in predictions])
    weights = np.array([random.random() for _ in predictions]) if weighted else None
    expected = theirs.pb("digit", labels, predictions, num_thresholds, weights)
    expected = summary_pb2.Summary.FromString(expected.SerializeToString()).value[0]
    ours = written(labels, predictions, num_thresholds, weights)
    assert ours.metadata.plugin_data == expected.metadata.plugin_data
    np.testing.assert_allclose(
        make_ndarray(ours.tensor), make_ndarray(expected.tensor), rtol=1e-6, atol=1e-6
    )


def test_what_is_not_finite_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    labels, predictions = [True, True, False, True], [0.9, np.nan, 0.1, np.inf]
    assert np.array_equal(curve(labels, predictions), curve([True, False], [0.9, 0.1]))
    assert len(caplog.records) == 1
    assert "pr_curve 'digit' has 1 NaN and 1 infinite values, left out" in caplog.text


def test_rounded_predictions_one_weight_and_nothing_will_do() -> None:
    assert np.array_equal(curve([1, 0], [1.0001, -0.0001]), curve([1, 0], [1.0, 0.0]))
    weighted = curve([1, 0], [0.9, 0.1], weights=2.0)
    assert np.array_equal(weighted[:4], 2 * curve([1, 0], [0.9, 0.1])[:4])
    assert not curve([], []).any()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([1, 0], [2.5, 0.0]), r"predictions of .*'digit' must be from 0.0 to 1.0, got 2.5"),
        (([1, 2], [0.5, 0.5]), r"labels of .*'digit' must be 0 or 1, got 2"),
        (([1, 0], [0.5, 0.5], 5, [1, -1]), r"weights of .*'digit' must be finite and not negative"),
        (
            ([1, 0], [0.5, 0.5], 5, [1, np.nan]),
            r"weights of .* must be finite and not neg.*got nan",
        ),
    ],
)
def test_what_is_beyond_its_range_is_refused(arrays: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(*arrays)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'digit' .* shape, got \[2\], \[3\]"):
        pr_curve_value("digit", [True, False], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"'digit' .* shape, got \[2\], \[3\]"):
        written([True, False], Late([0.1, 0.2, 0.3]))


def test_too_few_thresholds_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="num_thresholds"):
        pr_curve_value("digit", [True], [0.5], 0)
    with pytest.raises(TypeError, match="num_thresholds"):
        pr_curve_value("digit", [True], [0.5], 10.5)
    with pytest.raises(TypeError, match="predictions"):
        pr_curve_value("digit", [True], None)
