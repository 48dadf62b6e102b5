"""The global step: one int64 variable, known on the host without a run."""

import numpy as np
import pytest

import runhooks as rh


def test_graph_has_none_until_it_is_created_and_then_one(graph):
    assert rh.train.get_global_step() is None
    step = rh.train.get_or_create_global_step()
    assert rh.train.get_global_step() is rh.train.get_global_step(graph) is step
    assert rh.train.get_or_create_global_step() is step
    assert step.name == "global_step:0"
    with pytest.raises(ValueError, match="global_step"):
        rh.train.create_global_step()


def test_it_is_made_in_the_graph_given(engine):
    graph, default = rh.Graph(engine=engine), rh.Graph(engine=engine)
    with default.as_default():
        rh.train.create_global_step(graph)
        assert rh.train.get_global_step() is None
    assert rh.train.get_global_step(graph).graph is graph


def test_it_is_checkpointed_but_not_trained(graph):
    step = rh.train.create_global_step()
    assert step in graph.get_collection(rh.GraphKeys.GLOBAL_VARIABLES)
    assert step not in graph.get_collection(rh.GraphKeys.TRAINABLE_VARIABLES)


@pytest.mark.every_engine
def test_session_knows_it_without_a_run(graph):
    step = rh.train.create_global_step()
    add = step.assign_add(1)
    with rh.Session(graph) as sess:
        assert sess.global_step == 0
        sess.run(add)
        assert sess.global_step == 1
        assert type(sess.global_step) is int
        assert rh.train.global_step(sess) == rh.train.global_step(sess, step) == 1


def test_session_of_a_graph_without_one_has_none(graph):
    with rh.Session(graph) as sess:
        assert sess.global_step is None
        with pytest.raises(RuntimeError, match="create_global_step"):
            rh.train.global_step(sess)


@pytest.mark.every_engine
def test_it_is_an_int64_that_counts_beyond_32_bits(graph):
    step = rh.train.create_global_step()
    add = step.assign_add(1)
    with rh.Session(graph) as sess:
        sess.run(step.assign(2**40))
        fetched = sess.run(add)
        assert sess.global_step == fetched == 2**40 + 1
        assert np.asarray(fetched).dtype == np.asarray(sess.run(step)).dtype == np.int64
    assert np.shape(fetched) == ()


@pytest.mark.every_engine
def test_run_reads_the_step_at_which_it_began(graph):
    step = rh.train.create_global_step()
    with rh.Session(graph) as sess:
        assert sess.run([step, step.assign_add(1)]) == [0, 1]
        assert sess.run(step) == 1


@pytest.mark.every_engine
def test_device_code_can_use_it(graph):
    step = rh.train.create_global_step()
    rate = rh.call(lambda s, base: base * 0.5**s, step, np.float32(1), name="rate")
    train_op = rh.group(step.assign_add(1))
    with rh.Session(graph) as sess:
        rates = [float(sess.run([rate, train_op])[0]) for _ in range(3)]
    assert rates == [1.0, 0.5, 0.25]


@pytest.mark.every_engine
def test_arithmetic_on_it_needs_no_framework(graph):
    step = rh.train.create_global_step()
    due = (step + 1) % 2 == 0
    assert due is False
    epoch = (step + 7) // 3
    with rh.Session(graph) as sess:
        assert sess.run(epoch) == 2


@pytest.mark.every_engine
@pytest.mark.parametrize("value", [1.5, "one", [1, 2]], ids=repr)
def test_what_is_no_integer_is_refused(value, graph):
    step = rh.train.create_global_step()
    with rh.Session(graph) as sess:
        with pytest.raises((TypeError, ValueError), match="global_step"):
            sess.run(step.assign(value))
        assert sess.global_step == 0


@pytest.mark.every_engine
def test_a_step_that_is_counted_twice_in_a_run_counts_both(graph):
    step = rh.train.get_or_create_global_step()
    train = rh.group(step.assign_add(1), step.assign_add(2))
    with rh.Session(graph) as sess:
        for run in range(1, 4):
            sess.run(train)
            assert sess.global_step == 3 * run
