"""What a raw session tells of its runs, and what it keeps to itself."""

import numpy as np
import pytest

import runhooks as rh


def test_runs_that_end_well_are_counted(model):
    with rh.Session() as sess:
        assert sess.runs == 0
        sess.run(model.train_op)
        sess.run(model.loss)
        model.faults.fail(OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            sess.run(model.train_op)
        assert sess.runs == 2


def test_waiting_is_for_the_device_to_have_computed_the_variables():
    import jax

    def slow(matrix):
        return jax.lax.fori_loop(0, 300, lambda _, m: m @ m / 300, matrix)

    with rh.Graph("jax").as_default() as graph, rh.Session(graph) as sess:
        matrix = rh.Variable(np.ones((300, 300), np.float32), name="matrix")
        new = matrix.assign(rh.call(slow, matrix))
        sess.wait()
        sess.run(new)
        value = sess.run([new])[0]
        sess.wait()
        assert value.is_ready()


@pytest.mark.every_engine
def test_closed_session_has_nothing_to_wait_for(graph):
    sess = rh.Session(graph)
    sess.wait()
    sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        sess.wait()


@pytest.mark.every_engine
def test_local_variables_are_not_saved_and_begin_anew_in_each_session(graph):
    total = rh.Variable(np.float32(1), "total", collections=[rh.GraphKeys.LOCAL_VARIABLES])
    weights = rh.Variable(np.float32(1), name="weights")
    add = [total.assign_add(1), weights.assign_add(1)]
    with rh.Session(graph) as sess, rh.Session(graph) as other:
        sess.run(add)
        snapshot = sess.snapshot()
        assert set(snapshot.arrays) == {"weights"}
        other.load(snapshot)
        assert other.run([total, weights]) == [1, 2]
        sess.load(snapshot)  # what it loads leaves its own local variables alone
        assert sess.run([total, weights]) == [2, 2]


class Nested:
    """The python engine calls functions in the middle of a run: here one runs the session."""

    def __init__(self):
        self.graph = rh.Graph()
        with self.graph.as_default():
            self.a, self.b = (rh.Variable(np.float64(0), name=name) for name in "ab")
            self.inner = self.a.assign_add(1)
            called = rh.call(lambda: self.sess.run(self.inner))
            self.outer_of_a = self.a.assign_add(called)
            self.outer_of_b = self.b.assign_add(called)
        self.sess = rh.Session(self.graph)


def test_run_inside_a_run_may_assign_other_variables():
    it = Nested()
    it.sess.run(it.outer_of_b)
    assert it.sess.run([it.a, it.b]) == [1, 1]


def test_run_inside_a_run_that_assigns_the_same_variable_is_an_error():
    it = Nested()
    with pytest.raises(RuntimeError, match="'a'"):
        it.sess.run(it.outer_of_a)
    assert it.sess.run(it.a) == 1, "the inner run, which ended well"


@pytest.mark.every_engine
def test_source_may_run_the_session_it_feeds(graph):
    policy = rh.Variable(np.float32(1), name="policy")

    def acted(step):
        while True:
            yield np.float32(10 * sess.run(policy))

    update = policy.assign(policy + rh.inputs(acted))
    with rh.Session(graph) as sess:
        assert [float(sess.run(update)) for _ in range(2)] == [11, 121]
