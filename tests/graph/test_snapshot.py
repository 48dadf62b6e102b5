"""A session's snapshot: all that a checkpoint holds, taken and put back as a whole."""

import re

import ml_dtypes
import numpy as np
import pytest

import runhooks as rh

pytestmark = pytest.mark.every_engine


def state():
    return {"w": np.ones((2, 2), np.float32), "half": [np.ones(3, ml_dtypes.bfloat16)]}


@pytest.fixture
def trained(graph):
    """A session, its variables, and an operation that changes them all."""
    v, count = rh.Variable(state(), name="state"), rh.Variable(np.int32(0), name="count")
    step = rh.train.create_global_step()
    train_op = rh.group(v.assign_add(state()), count.assign_add(2), step.assign_add(1))
    sess = rh.Session(graph)
    sess.run(train_op)
    return sess, [v, count, step], train_op


def assert_equal(one, other):
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        np.testing.assert_array_equal(array, other.arrays[name])


def test_arrays_are_named_for_variable_and_path(trained):
    sess, _, _ = trained
    arrays = sess.snapshot().arrays
    assert set(arrays) == {"state/w", "state/half/0", "count", "global_step"}
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert arrays["state/half/0"].dtype == ml_dtypes.bfloat16
    assert arrays["global_step"].dtype == np.int64
    assert arrays["global_step"] == 1


def test_loaded_session_goes_on_from_there(trained, graph):
    sess, _, train_op = trained
    other = rh.Session(graph)
    other.load(sess.snapshot())
    assert other.global_step == 1
    for each in (sess, other):
        each.run(train_op)
    assert_equal(other.snapshot(), sess.snapshot())


def test_loading_leaves_the_snapshot_as_it_was(trained):
    sess, _, train_op = trained
    snapshot = sess.snapshot()
    for _ in range(2):
        sess.load(snapshot)
        for _ in range(2):
            sess.run(train_op)
    sess.load(snapshot)
    assert_equal(sess.snapshot(), snapshot)


def test_only_loads_the_variables_named(trained, graph):
    sess, (_, count, _), _ = trained
    other = rh.Session(graph)
    other.load(sess.snapshot(), only={"count"})
    assert other.run(count) == 2
    assert other.global_step == 0


def without(arrays, name):
    return {key: value for key, value in arrays.items() if key != name}


DAMAGE = {
    "missing": (lambda a: without(a, "state/w"), "state/w"),
    "unexpected": (lambda a: {**a, "surplus/w": np.zeros(1)}, "surplus/w"),
    "other shape": (lambda a: {**a, "state/w": np.ones((3, 3), np.float32)}, "float32[3, 3]"),
    "other dtype": (lambda a: {**a, "state/w": np.ones((2, 2), np.int32)}, "int32"),
    "no step": (lambda a: without(a, "global_step"), "global_step"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_snapshot_of_another_model_is_refused_whole(what, trained):
    sess, _, train_op = trained
    snapshot = sess.snapshot()
    sess.run(train_op)
    before = sess.snapshot()
    damage, named = DAMAGE[what]
    with pytest.raises(ValueError, match=re.escape(named)):
        sess.load(snapshot._replace(arrays=damage(snapshot.arrays)))
    assert_equal(sess.snapshot(), before)


def test_error_names_every_variable_that_does_not_fit(trained):
    sess, _, _ = trained
    snapshot = sess.snapshot()
    arrays = {**without(snapshot.arrays, "count"), "surplus": np.zeros(1)}
    with pytest.raises(ValueError, match="count") as caught:
        sess.load(snapshot._replace(arrays=arrays))
    assert "surplus" in str(caught.value)


class Counter:
    """Something with a state of its own, as a hook may have."""

    def __init__(self, count=0):
        self.count = count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_state_of_what_is_attached_comes_back_whenever_it_is_attached(trained, graph):
    sess, _, _ = trained
    sess.attach("counter", Counter(5))
    snapshot = sess.snapshot()
    assert snapshot.states["counter"] == {"count": 5}
    before, after = Counter(), Counter()
    for other, counter in ((rh.Session(graph), before), (rh.Session(graph), after)):
        if counter is before:
            other.attach("counter", counter)
        other.load(snapshot)
        if counter is after:
            other.attach("counter", counter)
        assert counter.count == 5


def test_closed_session_is_neither_saved_nor_loaded(graph):
    v = rh.Variable(1.0, name="v")
    sess = rh.Session(graph)
    sess.run(v.assign(2.0))
    snapshot = sess.snapshot()
    sess.close()
    for act in (sess.snapshot, lambda: sess.load(snapshot), lambda: sess.run(v)):
        with pytest.raises(RuntimeError, match="closed"):
            act()
