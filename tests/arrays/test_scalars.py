"""What the value of a scalar may be: numbers, and arrays of size 1 of any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch
from jax import numpy as jnp

from runhooks.arrays import ArrayLibrary, register
from runhooks.arrays.values import read_number, read_numbers

HALVES = {
    "Python's float": 0.5,
    "NumPy's float16": np.float16(0.5),
    "NumPy's float32": np.float32(0.5),
    "NumPy's array": np.array(0.5),
    "NumPy's array of two axes": np.array([[0.5]]),
    "list": [0.5],
    "jax": jnp.float32(0.5),
    "jax of one axis": jnp.ones(1) / 2,
    "jax bfloat16": jnp.bfloat16(0.5),
    "NumPy's bfloat16": np.asarray(jnp.bfloat16(0.5)),
    "torch": torch.tensor(0.5),
    "torch of one axis": torch.tensor([0.5]),
    "torch with a gradient": torch.tensor(0.5, requires_grad=True) * 1,
    "torch bfloat16": torch.tensor(0.5, dtype=torch.bfloat16),
    "TensorFlow": tf.constant(0.5),
    "TensorFlow of one axis": tf.constant([0.5]),
    "TensorFlow bfloat16": tf.constant(0.5, tf.bfloat16),
    "TensorFlow variable": tf.Variable(0.5),
}
NO_NUMBERS = ["0.5", b"0.5", None, 0.5j, np.complex64(1), np.array("0.5"), np.datetime64(1, "s")]


@pytest.mark.parametrize("value", HALVES.values(), ids=HALVES.keys())
def test_a_number_of_any_library(value: Any) -> None:
    assert read_number(value) == 0.5


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (True, 1), (np.True_, 1), (np.uint8(200), 200), (np.int64(-1), -1), (10**30, 1e30)],
)
def test_integers_and_bools(value: Any, expected: float) -> None:
    assert read_number(value) == expected
    assert read_numbers([0.5, value]).tolist() == [0.5, expected]


def test_all_libraries_at_once() -> None:
    numbers = read_numbers(list(HALVES.values()))
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [0.5] * len(HALVES)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_real_number(value: Any) -> None:
    for read in (read_number, lambda value: read_numbers([0.5, value])):
        with pytest.raises(TypeError):
            read(value)


@pytest.mark.parametrize("value", [np.zeros(0), [1.0, 2.0], torch.zeros(2, 1), jnp.zeros((1, 3))])
def test_what_is_not_one_number(value: Any) -> None:
    for read in (read_number, lambda value: read_numbers([0.5, value])):
        with pytest.raises(ValueError, match="shape"):
            read(value)


def test_all_copies_from_a_device_are_begun_before_one_is_waited_for() -> None:
    calls = []

    class OnDevice:
        def item(self) -> float:
            calls.append("wait")
            return 0.5

    class Device(ArrayLibrary):
        name = "device"

        def owns(self, kind: type) -> bool:
            return kind is OnDevice

        def start_copy(self, array: Any) -> None:
            calls.append("begin")

    register(Device())

    assert read_numbers([OnDevice(), 0.5, OnDevice()]).tolist() == [0.5] * 3
    assert calls == ["begin", "begin", "wait", "wait"]
