"""The text of a number is what ``repr`` makes of it, whatever the number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from runhooks.events.format.number_text import PAD, float_texts, int_texts, texts

N = 20_000
rng = np.random.default_rng(0)


def lines(rows: NDArray[np.uint8]) -> list[str]:
    return [row[row != PAD].tobytes().decode() for row in rows]


@given(st.lists(st.floats() | st.floats(width=32) | st.floats(-1e17, 1e17) | st.decimals(0, 9)))
def test_any_floats(numbers: list[float]) -> None:
    column = np.array(numbers, np.float64)
    assert lines(float_texts(column)) == list(map(repr, column.tolist()))


@pytest.mark.parametrize(
    "numbers",
    [
        rng.normal(size=N).astype(np.float32).astype(np.float64),
        1.7e9 + rng.random(N) * 1e8,
        rng.random(N) * 10.0 ** rng.integers(-6, 18, N),
        rng.integers(1, 10**9, N) / 10.0 ** rng.integers(0, 14, N),
        rng.integers(0, 2**53, N) / 2.0 ** rng.integers(0, 60, N),
        np.nextafter(10.0 ** rng.integers(-6, 20, N), rng.choice([-np.inf, np.inf], N)),
        np.nextafter(2.0 ** rng.integers(-20, 60, N), rng.choice([-np.inf, np.inf], N)),
        10.0 ** np.arange(-30, 30),
        2.0 ** np.arange(-60, 60),
        np.arange(-1000, 1000) / 8,
    ],
    ids=[
        *("float32", "times", "sizes", "decimals", "fractions"),
        *(
            "beside powers of ten",
            "beside powers of two",
            "powers of ten",
            "powers of two",
            "eighths",
        ),
    ],
)
def test_many_floats(numbers: NDArray[np.float64]) -> None:
    assert lines(float_texts(numbers)) == list(map(repr, numbers.tolist()))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-100, 100)))
def test_any_integers(numbers: list[int]) -> None:
    assert lines(int_texts(np.array(numbers, np.int64))) == list(map(str, numbers))


@given(st.lists(st.text(max_size=9).map(lambda text: text.encode(errors="surrogatepass"))))
def test_any_texts(words: list[bytes]) -> None:
    assert [row[row != PAD].tobytes() for row in texts(words)] == words
