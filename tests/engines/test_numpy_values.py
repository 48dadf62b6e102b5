"""Whose arrays the variables of NumPy's engine hold: their own, copied where others have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import runhooks as rh

SIZE = 8

#: What a step may keep of the state that it returns, by which it could change the state later.
KEPT = {
    "nothing": lambda state: None,
    "the array": lambda state: state["weights"],
    "a view of it": lambda state: state["weights"][2:],
    "a buffer of it": lambda state: memoryview(state["weights"]),
    "the list it is in": lambda state: state["layers"],
    "the whole state": lambda state: state,
}


def arrays_of(kept: Any) -> list[Any]:
    if isinstance(kept, dict):
        return [kept["weights"], kept["layers"][0]]
    return [kept[0]] if isinstance(kept, list) else [] if kept is None else [kept]


@pytest.mark.parametrize("shares", [False, True], ids=["", "part of a larger array"])
@pytest.mark.parametrize("kept", KEPT)
def test_what_a_step_keeps_of_its_result_is_not_the_memory_of_a_variable(kept, shares):
    all_kept, buffer = [], np.zeros(SIZE)

    def step(state):
        weights = state["weights"] + 1
        if shares:
            buffer[:] = weights
            weights = buffer[:]
        new = {"weights": weights, "layers": [state["layers"][0] + 1]}
        all_kept.append(KEPT[kept](new))
        return new

    with rh.Graph().as_default():
        initial = {"weights": np.zeros(SIZE), "layers": [np.zeros(SIZE)]}
        state = rh.Variable(initial, name="state")
        train_op = rh.group(state.assign(rh.call(step, state)), name="train_op")
        with rh.MonitoredSession() as session:
            for run in range(1, 6):
                session.run(train_op)
                buffer[:] = -1
                for array in arrays_of(all_kept.pop()):
                    assert array[0] in (run, -1), "what it keeps is what it returned"
                    array[:] = memoryview(np.full(len(array), -1.0))
                value = session.run(state)
                np.testing.assert_array_equal(value["weights"], np.full(SIZE, run))
                np.testing.assert_array_equal(value["layers"][0], np.full(SIZE, run))


def test_two_variables_and_a_fetched_value_share_no_memory():
    def step(a, b):
        new = a + 1
        return new, new, {"seen": new}

    with rh.Graph().as_default():
        a, b = rh.Variable(np.zeros(SIZE), name="a"), rh.Variable(np.zeros(SIZE), name="b")
        new_a, new_b, seen = rh.call(step, a, b, num_outputs=3)
        train_op = rh.group(a.assign(new_a), b.assign(new_b), name="train_op")
        with rh.MonitoredSession() as session:
            for run in range(1, 5):
                _, fetched = session.run([train_op, seen])
                fetched["seen"][:] = -1
                values = session.run([a, b])
                assert not np.shares_memory(*values)
                np.testing.assert_array_equal(values, np.full((2, SIZE), run))
