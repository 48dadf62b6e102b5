"""What ``run`` takes as fetches, the shape in which it answers, and what it leaves out."""

from typing import NamedTuple

import numpy as np
import pytest

import runhooks as rh


class Point(NamedTuple):
    x: object
    y: object


class Pair(tuple):
    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


@pytest.fixture
def fetched(graph):
    a = rh.Variable(np.float32(1), name="a")
    b = rh.call(lambda x: x + 1, a, name="b")
    rh.group(b, name="op")
    with rh.Session(graph) as sess:
        yield lambda build: sess.run(build(a, b))


@pytest.mark.every_engine
def test_variables_and_tensors_give_their_values(fetched):
    assert fetched(lambda a, b: [b, a]) == [2.0, 1.0]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: b.op, None),
        (lambda a, b: "a:0", 1.0),
        (lambda a, b: "op", None),
        (lambda a, b: [b, b, "b:0"], [2.0, 2.0, 2.0]),
        (lambda a, b: (b, a), (2.0, 1.0)),
        (lambda a, b: Point(x=b, y=a), Point(2.0, 1.0)),
        (lambda a, b: Pair(a, b), (1.0, 2.0)),
        (lambda a, b: {"z": a, 1: b}, {"z": 1.0, 1: 2.0}),
        (
            lambda a, b: {"k": [a, ("op", {"b": b})], "none": []},
            {"k": [1.0, (None, {"b": 2.0})], "none": []},
        ),
    ],
)
def test_answer_has_the_form_of_the_fetches(build, expected, fetched):
    answer = fetched(build)
    assert answer == expected
    assert type(answer) is type(expected) or isinstance(expected, float)


@pytest.mark.every_engine
def test_value_that_is_a_pytree_comes_back_whole(graph):
    pair = rh.call(lambda: {"x": (np.int32(1), np.int32(2))}, name="pair")
    with rh.Session(graph) as sess:
        assert sess.run([pair]) == [{"x": (1, 2)}]


@pytest.mark.every_engine
def test_several_outputs_are_tensors_of_one_operation(graph):
    total, difference = rh.call(lambda x: (x + 1, x - 1), 5, num_outputs=2, name="both")
    assert (total.name, difference.name) == ("both:0", "both:1")
    with rh.Session(graph) as sess:
        assert sess.run([difference, total]) == [4, 6]


@pytest.mark.every_engine
def test_other_number_of_outputs_than_said_is_an_error(graph):
    both = rh.call(lambda: (1, 2, 3), num_outputs=2, name="both")
    with rh.Session(graph) as sess, pytest.raises(ValueError, match=r"both.*2.*3"):
        sess.run(both[0])


@pytest.mark.parametrize("fetch", [3.0, object(), b"a:0"], ids=["number", "object", "bytes"])
def test_what_cannot_be_fetched_is_an_error_showing_it(fetch, fetched):
    with pytest.raises(TypeError, match=repr(fetch)[:12].replace("'", ".")):
        fetched(lambda a, b: [a, fetch])


@pytest.mark.every_engine
def test_only_what_is_fetched_is_computed_and_once(graph):
    computed = []

    def compute(name, x):
        computed.append(name)
        return x

    wanted = rh.call(lambda x: compute("wanted", x), 1)
    rh.call(lambda x: compute("unwanted", x), wanted)
    with rh.Session(graph) as sess:
        assert sess.run([wanted + 1, wanted + 2]) == [2, 3]
    assert computed == ["wanted"]


def test_fetching_changes_nothing_in_the_graph(graph):
    a = rh.Variable(1.0, name="a")
    graph.finalize()
    with rh.Session(graph) as sess:
        assert sess.run({"a": [a, "a:0", "a"]}) == {"a": [1.0, 1.0, None]}
