"""What ``run`` takes as fetches, the shape in which it answers, and what it leaves out."""

from typing import NamedTuple

import numpy as np
import pytest

import runhooks as rh


class Point(NamedTuple):
    x: object
    y: object


@pytest.fixture
def fetched(graph):
    a = rh.Variable(np.float32(1), name="a")
    b = rh.call(lambda x: x + 1, a, name="b")
    rh.group(b, name="op")
    with rh.Session(graph) as sess:
        yield lambda build: sess.run(build(a, b))


@pytest.mark.every_engine
def test_tensor_gives_its_value(fetched):
    assert fetched(lambda a, b: b) == 2.0


@pytest.mark.every_engine
def test_variable_gives_its_value(fetched):
    assert fetched(lambda a, b: a) == 1.0


def test_operation_gives_none(fetched):
    assert fetched(lambda a, b: b.op) is None


@pytest.mark.parametrize(
    ("name", "value"), [("a:0", 1.0), ("b:0", 2.0), ("op", None)], ids=["variable", "tensor", "op"]
)
def test_name_gives_what_it_names(name, value, fetched):
    assert fetched(lambda a, b: name) == value


def test_list_gives_a_list(fetched):
    assert fetched(lambda a, b: [a, b]) == [1.0, 2.0]


def test_tuple_gives_a_tuple(fetched):
    assert fetched(lambda a, b: (b, a)) == (2.0, 1.0)


def test_named_tuple_gives_the_same_class(fetched):
    point = fetched(lambda a, b: Point(x=b, y=a))
    assert isinstance(point, Point)
    assert point.x == 2.0


def test_dict_gives_its_keys(fetched):
    assert fetched(lambda a, b: {"z": a, 1: b}) == {"z": 1.0, 1: 2.0}


def test_nesting_is_kept(fetched):
    fetches = fetched(lambda a, b: {"k": [a, ("op", {"b": b})], "none": []})
    assert fetches == {"k": [1.0, (None, {"b": 2.0})], "none": []}


def test_tensor_fetched_twice_is_given_twice(fetched):
    assert fetched(lambda a, b: [b, b, "b:0"]) == [2.0, 2.0, 2.0]


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
def test_only_what_is_fetched_is_computed(graph):
    computed = []

    def compute(name, x):
        computed.append(name)
        return x

    wanted = rh.call(lambda x: compute("wanted", x), 1)
    rh.call(lambda x: compute("unwanted", x), wanted)
    with rh.Session(graph) as sess:
        sess.run(wanted)
    assert computed == ["wanted"]


@pytest.mark.every_engine
def test_tensor_that_two_fetches_need_is_computed_once(graph):
    computed = []
    shared = rh.call(lambda: computed.append(1) or 1.0)
    with rh.Session(graph) as sess:
        assert sess.run([shared + 1, shared + 2]) == [2.0, 3.0]
    assert len(computed) == 1


def test_fetching_changes_nothing_in_the_graph(graph):
    a = rh.Variable(1.0, name="a")
    graph.finalize()
    with rh.Session(graph) as sess:
        assert sess.run({"a": [a, "a:0", "a"]}) == {"a": [1.0, 1.0, None]}
