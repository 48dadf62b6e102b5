import math
from decimal import Decimal
from fractions import Fraction

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import summary_pb2

from runhooks.summary import Summary, scalar_value
from tests.summary.conftest import Late


def written(value: object) -> float:
    message = Summary([scalar_value("loss", value)]).SerializeToString()
    return summary_pb2.Summary.FromString(message).value[0].simple_value


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_is_written_exactly(value: float) -> None:
    assert written(value) == value


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        np.float16(1.5),
        np.array([[1.5]]),
        [1.5],
        ml_dtypes.bfloat16(1.5),
        jnp.bfloat16(1.5),
        jnp.array([1.5]),
    ],
)
def test_anything_of_size_one_will_do(value: object) -> None:
    assert written(value) == 1.5


def test_nan_and_infinities_are_written_as_they_are() -> None:
    assert math.isnan(written(math.nan))
    assert [written(-math.inf), written(np.float32(math.inf)), written(1e300)] == [
        -math.inf,
        math.inf,
        math.inf,
    ]


def test_an_int_may_be_of_any_size() -> None:
    assert [written(2**64), written(-(2**65))] == [2.0**64, -(2.0**65)]
    assert [written(10**40), written(-(10**40))] == [math.inf, -math.inf]
    assert [written(value) for value in (3, True, np.uint8(200))] == [3.0, 1.0, 200.0]
    assert [written(Decimal("0.25")), written(Fraction(1, 4))] == [0.25, 0.25]


@pytest.mark.parametrize("value", [[], [1.0, 2.0], np.zeros((2, 3))])
def test_any_other_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="'loss' must be a single number"):
        scalar_value("loss", value)
    with pytest.raises(ValueError, match="must be a single number(.|\n)*'loss'"):
        written(Late(value))


@pytest.mark.parametrize("value", ["1.5", None, b"1", 1j, {}, {"a": 1}, np.array("x"), object()])
def test_what_is_not_a_number_is_refused_at_once(value: object) -> None:
    with pytest.raises(TypeError, match="scalar 'loss' must"):
        scalar_value("loss", value)
