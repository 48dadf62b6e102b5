"""Where parts of a run are computed shows in nothing but its speed: order and values are kept."""

import pytest

import runhooks as rh

pytestmark = pytest.mark.every_engine


@pytest.fixture
def counter(graph):
    return rh.train.create_global_step()


def test_assignments_keep_their_order_when_one_waits_for_the_engine(graph, counter):
    first = counter.assign(rh.call(lambda: 10))
    second = counter.assign_add(1)
    with rh.Session(graph) as sess:
        assert sess.run([first, second]) == [10, 11]
        assert sess.global_step == 11


def test_arithmetic_on_what_the_host_makes_last(graph, counter):
    late = counter.assign(rh.call(lambda: 10))
    with rh.Session(graph) as sess:
        assert sess.run(late * 2 + 1) == 21


def test_arithmetic_on_the_counter_feeds_both_host_and_engine(graph, counter):
    doubled = counter * 2
    seen = rh.call(lambda x: x + 1, doubled)
    with rh.Session(graph) as sess:
        sess.run(counter.assign(3))
        assert sess.run([seen, counter.assign(doubled), counter]) == [7, 6, 3]
        assert sess.global_step == 6


def test_new_value_of_the_counter_reaches_the_engine(graph, counter):
    seen = rh.call(lambda x: x * 2, counter.assign_add(4))
    with rh.Session(graph) as sess:
        assert sess.run([seen, counter]) == [8, 0]
        assert sess.global_step == 4


def test_what_the_host_makes_last_cannot_go_back_to_the_engine(graph, counter):
    late = counter.assign(rh.call(lambda: 10))
    again = rh.call(lambda x: x, late, name="again")
    with rh.Session(graph) as sess:
        with pytest.raises(ValueError, match="'again'"):
            sess.run(again)
