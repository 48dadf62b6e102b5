from __future__ import annotations

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


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": [0, np.int64(3)]}}, "'hook/a/b/1' is a int64"),
        ({"a": np.zeros(2)}, "'hook/a' is a ndarray"),
        ({"a": {1, 2}}, "'hook/a' is a set"),
        (b"bytes", "'hook' is a bytes"),
        ({"a": {1: "one"}}, "'hook/a' has the key 1: keys must be str"),
    ],
)
def test_refuses_what_json_would_not_bring_back(state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        states.encode({"hook": state})
