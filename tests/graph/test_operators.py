"""Operators on tensors compute what they compute on NumPy arrays."""

import operator

import numpy as np
import pytest

import runhooks as rh

A = np.array([7.0, -3.0, 2.5], np.float32)
B = np.array([2.0, 2.0, -1.5], np.float32)
M = np.arange(9, dtype=np.float32).reshape(3, 3)
P, Q = np.array([6, 3, 8], np.int32), np.array([3, 5, 1], np.int32)
BINARY = {
    "+": (operator.add, A, B),
    "-": (operator.sub, A, B),
    "*": (operator.mul, A, B),
    "/": (operator.truediv, A, B),
    "//": (operator.floordiv, A, B),
    "%": (operator.mod, A, B),
    "**": (operator.pow, np.abs(A), B),
    "@": (operator.matmul, M, A),
    "<": (operator.lt, A, B),
    "<=": (operator.le, A, A),
    ">": (operator.gt, A, B),
    ">=": (operator.ge, A, A),
    "&": (operator.and_, P, Q),
    "|": (operator.or_, P, Q),
    "^": (operator.xor, P, Q),
}
UNARY = {"neg": (operator.neg, A), "abs": (abs, A), "~": (operator.invert, P)}
KEYS = {"index": 1, "negative": -1, "slice": slice(1, None), "new axis": np.newaxis, "...": ...}


@pytest.fixture
def value_of(graph):
    with rh.Session(graph) as sess:
        yield lambda tensor, feeds=None: np.asarray(sess.run(tensor, feeds))


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert actual.dtype == np.asarray(expected).dtype


@pytest.mark.every_engine
@pytest.mark.parametrize("sign", BINARY)
def test_operator_of_tensors_and_arrays_on_either_side(sign, value_of):
    op, a, b = BINARY[sign]
    one, other = rh.Variable(a), rh.Variable(b)
    for result in (op(one, other), op(one, b), op(a, other)):
        assert_close(value_of(result), op(a, b))


@pytest.mark.every_engine
@pytest.mark.parametrize("sign", UNARY)
def test_operator_of_one_tensor(sign, value_of):
    op, a = UNARY[sign]
    assert_close(value_of(op(rh.Variable(a))), op(a))


@pytest.mark.every_engine
@pytest.mark.parametrize("key", KEYS)
def test_index(key, value_of):
    assert_close(value_of(rh.Variable(M)[KEYS[key]]), M[KEYS[key]])


@pytest.mark.every_engine
def test_index_may_be_a_tensor(value_of):
    row = rh.placeholder("row")
    assert_close(value_of(rh.Variable(M)[row], {row: 2}), M[2])
    assert_close(value_of(rh.Variable(M)[row, 1:], {row: 2}), M[2, 1:])


@pytest.mark.every_engine
def test_number_keeps_the_dtype_of_the_tensor(value_of):
    assert_close(value_of(2 * rh.Variable(A) + 1), 2 * A + 1)


def test_equality_is_identity(graph):
    a, b = rh.Variable(1.0), rh.Variable(1.0)
    assert a == a
    assert a != b
    assert {a: "a", b: "b"}[b] == "b"


@pytest.mark.parametrize("use", [bool, iter, list, np.asarray], ids=lambda use: use.__name__)
def test_tensor_cannot_be_used_as_a_value(use, graph):
    with pytest.raises(TypeError, match="loss:0"):
        use(rh.placeholder("loss"))


def test_operators_of_two_graphs_do_not_mix(graph, engine):
    mine = rh.placeholder("mine")
    with rh.Graph(engine=engine).as_default():
        foreign = rh.placeholder("foreign")
    with pytest.raises(ValueError, match="foreign"):
        mine + foreign


@pytest.mark.parametrize(("name", "use"), [("mean", r"mean\(\)"), ("shape", "shape,")])
def test_attribute_of_an_array_is_told_where_to_use_it(graph, name, use):
    with pytest.raises(AttributeError, match=f"lambda value: value.{use}"):
        getattr(rh.placeholder("x"), name)
