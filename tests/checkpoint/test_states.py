from __future__ import annotations

import signal
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from runhooks.checkpoint import states


def test_come_back_as_they_were() -> None:
    kept = {"EarlyStop": {"best": 0.25, "patience": 3, "seen": [1, None, True], "why": "é"}}
    assert states.decode(states.encode(kept)) == kept


def test_infinities_and_nan_are_kept() -> None:
    back = states.decode(states.encode({"best": [float("-inf"), float("nan")]}))
    assert back["best"][0] == float("-inf")
    assert back["best"][1] != back["best"][1]


def test_fetched_numbers_come_back_as_plain_ones() -> None:
    kept = {"best": np.float32(0.5), "steps": np.int64(3), "loss": np.array(2.0), "done": np.True_}
    back = states.decode(states.encode(kept))
    assert back == {"best": 0.5, "steps": 3, "loss": 2.0, "done": True}
    assert [type(value) for value in back.values()] == [float, int, float, bool]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": [0, 1j]}}, "'hook/a/b/1' is a complex"),
        ({"a": np.zeros(2)}, "'hook/a' is a ndarray"),
        ({"a": {1, 2}}, "'hook/a' is a set"),
        ({"a": [(1, 2)]}, "'hook/a/0' is a tuple"),
        ({"a": signal.SIGTERM}, "'hook/a' is a Signals"),
        ({"a": MappingProxyType({})}, "'hook/a' is a mappingproxy"),
        (b"bytes", "'hook' is a bytes"),
        ({"a": {1: "one"}}, "'hook/a' has the key 1: keys must be str"),
    ],
)
def test_refuses_what_json_would_not_bring_back(state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        states.encode({"hook": state})
