"""Variables: arrays and pytrees that live from run to run in the form they were made in."""

import contextlib
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import runhooks as rh
from runhooks.arrays import to_numpy

pytestmark = pytest.mark.every_engine


class Layer(NamedTuple):
    kernel: object
    bias: object


def ones(*shape):
    return np.ones(shape, np.float32)


def doubled(tree):
    if isinstance(tree, dict):
        return {key: doubled(value) for key, value in tree.items()}
    if isinstance(tree, Layer):
        return Layer(*map(doubled, tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map(doubled, tree))
    return None if tree is None else tree + tree


def assert_same(actual, expected):
    assert type(actual) is type(expected) or not isinstance(expected, dict | list | tuple)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif expected is None:
        assert actual is None
    else:
        actual, expected = to_numpy(actual), np.asarray(expected)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


PYTREES = {
    "array": ones(2, 3),
    "empty array": ones(0, 3),
    "dict": {"w": ones(2), "b": ones(1)},
    "list": [ones(2), ones()],
    "tuple": (ones(2), ones()),
    "named tuple": Layer(ones(2, 2), ones(2)),
    "nested": {"layers": [Layer(ones(2), ones(1)), Layer(ones(1), ones(2))], "rest": ((), {})},
    "none": {"w": ones(2), "nothing": None},
    "integers": np.arange(4, dtype=np.int32),
    "booleans and integers": (np.array([1, 2], np.uint8), np.array([3], np.int8)),
    "bfloat16": {"w": np.ones(2, ml_dtypes.bfloat16)},
    "float16": np.ones(2, np.float16),
}


@pytest.mark.parametrize("what", PYTREES)
def test_pytree_is_kept_and_assigned_whole(what, graph):
    tree = PYTREES[what]
    v = rh.Variable(tree, name="v")
    step = v.assign(rh.call(doubled, v))
    with rh.Session(graph) as sess:
        assert_same(sess.run(v), tree)
        sess.run(step)
        assert_same(sess.run(v), doubled(tree))


def test_assign_add_adds_leaf_by_leaf(graph):
    v = rh.Variable({"w": ones(2), "layers": [Layer(ones(1), ones())]}, name="v")
    delta = {"w": 2 * ones(2), "layers": [Layer(3 * ones(1), np.float32(4))]}
    with rh.Session(graph) as sess:
        result = sess.run(v.assign_add(delta))
        assert_same(result, {"w": 3 * ones(2), "layers": [Layer(4 * ones(1), np.float32(5))]})


def test_number_is_a_scalar(graph):
    rate, count = rh.Variable(0.5, name="rate"), rh.Variable(3, name="count")
    with rh.Session(graph) as sess:
        sess.run([rate.assign_add(0.25), count.assign_add(1)])
        assert sess.run([rate, count]) == [0.75, 4]


def test_initial_value_may_be_a_callable_called_by_each_session(graph):
    made = []
    v = rh.Variable(lambda: made.append(1) or ones(2), name="v")
    assert made == []
    for _ in range(2):
        with rh.Session(graph) as sess:
            assert_same(sess.run(v), ones(2))
    assert len(made) == 2


def test_initial_value_stays_the_callers(graph):
    initial = {"w": ones(2)}
    v = rh.Variable(initial, name="v")
    add = v.assign_add({"w": ones(2)})
    for _ in range(2):
        with rh.Session(graph) as sess:
            for _ in range(3):
                sess.run(add)
            assert_same(sess.run(v), {"w": 4 * ones(2)})
    assert_same(initial, {"w": ones(2)})
    with rh.Session(graph) as sess:
        sess.run(v)
        initial["w"][:] = 9
        assert_same(sess.run(v), {"w": ones(2)})


MISFITS = {
    "shape": (ones(2), lambda: ones(3), ["float32[2]", "float32[3]"]),
    "rank": (ones(2), lambda: ones(), ["float32[2]", "float32[]"]),
    "dtype": (np.ones(2, np.int32), lambda: ones(2) / 2, ["int32", "float32"]),
    "rounded": (
        {"w": ones(2)},
        lambda: {"w": np.ones(2, np.float16)},
        ["float32[2]", "float16[2]", "rounded"],
    ),
    "structure": ({"w": ones(2)}, lambda: [ones(2)], []),
    "missing key": ({"w": ones(2), "b": ones(1)}, lambda: {"w": ones(2)}, []),
    "longer list": ([ones(1)], lambda: [ones(1)] * 2, ["length, 1", "has 2"]),
    "nothing": (ones(2), lambda: None, ["does the function return it"]),
    "leaf of a pytree": (
        {"a": {"w": ones(2)}},
        lambda: {"a": {"w": ones(3)}},
        ["float32[2]", "float32[3]"],
    ),
}


@pytest.mark.parametrize("what", MISFITS)
def test_value_that_does_not_fit_is_one_error_naming_the_variable(what, graph):
    initial, value, shown = MISFITS[what]
    v = rh.Variable(initial, name="weights")
    misfit = v.assign(rh.call(value))
    with rh.Session(graph) as sess:
        with pytest.raises((TypeError, ValueError), match="weights") as caught:
            sess.run(misfit)
        for part in shown:
            assert part in str(caught.value)
        assert_same(sess.run(v), initial)


def test_number_takes_the_dtype_of_the_variable(graph):
    v = rh.Variable(np.float32(1), name="v")
    with rh.Session(graph) as sess:
        sess.run(v.assign(2.5))
        sess.run(v.assign_add(1))
        assert_same(sess.run(v), np.float32(3.5))


def test_single_float_becomes_a_number_of_python(graph):
    best = rh.Variable(0.0, name="best")
    with rh.Session(graph) as sess:
        sess.run(best.assign(rh.call(lambda: np.float32(0.5))))
        assert sess.run(best) == 0.5


def test_half_precision_arithmetic_stays_half(graph):
    v = rh.Variable(np.ones(2, ml_dtypes.bfloat16), name="v")
    with rh.Session(graph) as sess:
        sess.run(v.assign_add(0.5))
        assert_same(sess.run(v), np.full(2, 1.5, ml_dtypes.bfloat16))


def test_variable_without_collections_joins_none(graph):
    v = rh.Variable(1.0, collections=[])
    assert v not in graph.get_collection(rh.GraphKeys.GLOBAL_VARIABLES)
    with rh.Session(graph) as sess:
        assert sess.run(v) == 1


def test_function_that_changes_its_argument_changes_no_variable(graph):
    v = rh.Variable({"w": np.zeros(2, np.float32)}, name="v")

    def grow(tree):
        tree["w"] = tree["w"] + 1
        return tree["w"]

    grown = rh.call(grow, v)
    with rh.Session(graph) as sess:
        for _ in range(2):
            np.testing.assert_array_equal(sess.run(grown), [1, 1])
        np.testing.assert_array_equal(sess.run(v)["w"], [0, 0])


def test_caller_that_changes_what_it_has_fetched_changes_no_variable(graph):
    v = rh.Variable({"w": np.zeros(2, np.float32), "l": [1.0]}, name="v")
    same = v.assign(rh.call(lambda tree: tree, v))
    with rh.Session(graph) as sess:
        for fetch in (v, same):
            got = sess.run(fetch)
            with contextlib.suppress(TypeError, ValueError):  # It may be read-only.
                got["w"][:] = 9
            got["w"] = 7
            got["l"].append(8)
        assert_same(sess.run(v), {"w": np.zeros(2, np.float32), "l": sess.run(v["l"])})
        assert len(sess.run(v)["l"]) == 1


def test_two_leaves_of_one_path_are_refused_before_anything_is_lost(graph):
    with pytest.raises(ValueError, match="'a/b'"):
        rh.Variable({"a/b": 1.0, "a": {"b": 2.0}}, name="v")


@pytest.mark.parametrize("number", [300, -1, 0.5])
def test_number_that_does_not_fit_is_refused_and_not_wrapped(graph, number):
    v = rh.Variable(np.zeros((), np.uint8), name="v")
    with rh.Session(graph) as sess:
        with pytest.raises(ValueError, match=f"'v'.*uint8.*{number}"):
            sess.run(v.assign(number))
        sess.run(v.assign(200))
        assert sess.run(v) == 200


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("initializer", "no initializers to run"),
        ("read_value", r"session\.run\(variable\)"),
        ("assign_sub", r"variable\.assign_add\(-delta\)"),
        ("load", r"variable\.assign\(value\)"),
        ("mean", r"value\.mean\(\)"),  # of arrays
    ],
)
def test_methods_of_tensorflows_variables_are_answered_with_ours(name, advice, graph):
    weights = rh.Variable(ones(2), name="weights")
    with pytest.raises(AttributeError, match=f"'weights:0'.*{name!r}: .*{advice}"):
        getattr(weights, name)
