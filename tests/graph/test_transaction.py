"""A run is a transaction: it reads what was there at its start, and assigns all or nothing."""

import numpy as np
import pytest

import runhooks as rh

pytestmark = pytest.mark.every_engine


def float_variable(value, name):
    return rh.Variable(np.float32(value), name=name)


def double(x):
    return 2 * x


def test_reads_see_the_start_of_the_run_and_assignments_apply_in_the_order_they_were_made(graph):
    v, w = float_variable(1, "v"), float_variable(0, "w")
    new, more = v.assign(np.float32(5)), v.assign_add(np.float32(2))
    with rh.Session(graph) as sess:
        assert sess.run([new, v, rh.call(double, v)]) == [5, 1, 2]
        assert sess.run([v, rh.call(double, v)]) == [5, 10]
        assert sess.run([more, new]) == [7, 5]
        assert sess.run([more * 10, v]) == [90, 7]
        sess.run(rh.group(v.assign(w), w.assign(v)))
        assert sess.run([v, w]) == [0, 9]
        sess.run(rh.group(v.assign_add(np.float32(100)), v.assign(np.float32(7))))
        assert sess.run([v, w]) == [7, 9]


def test_group_runs_all_its_parts_and_gives_none(graph):
    a, b = float_variable(0, "a"), float_variable(0, "b")
    inner = rh.group(a.assign_add(np.float32(1)))
    both = rh.group(inner, b.assign_add(np.float32(2)), name="both")
    with rh.Session(graph) as sess:
        assert sess.run(both) is None
        assert sess.run([a, b]) == [1, 2]


class Fails:
    """A function that raises at its call; on the jax engine that is while it is traced."""

    def __call__(self, x):
        raise ArithmeticError("no such number")


def test_run_that_raises_leaves_every_variable_as_it_was(graph):
    a, b = float_variable(1, "a"), float_variable(2, "b")
    step = rh.train.create_global_step()
    broken = rh.group(
        a.assign(np.float32(10)),
        step.assign_add(1),
        b.assign(rh.call(Fails(), a)),
    )
    with rh.Session(graph) as sess:
        with pytest.raises(ArithmeticError):
            sess.run(broken)
        assert sess.run([a, b, step]) == [1, 2, 0]
        assert sess.global_step == 0


def test_input_that_ends_leaves_every_variable_as_it_was(graph):
    v = float_variable(0, "v")
    add = v.assign_add(rh.inputs([np.float32(1), np.float32(2)]))
    with rh.Session(graph) as sess:
        sess.run(add)
        sess.run(add)
        for _ in range(2):
            with pytest.raises(rh.errors.OutOfRangeError):
                sess.run(add)
        assert sess.run(v) == 3


def test_error_in_a_function_names_its_operation(graph):
    broken = rh.call(Fails(), np.float32(1), name="ratio")
    with rh.Session(graph) as sess, pytest.raises(ArithmeticError) as caught:
        sess.run(broken)
    assert any("ratio" in note for note in caught.value.__notes__)


def test_sessions_of_one_graph_have_variables_of_their_own(graph):
    v = float_variable(1, "v")
    add = v.assign_add(np.float32(1))
    with rh.Session(graph) as one, rh.Session(graph) as other:
        one.run(add)
        assert one.run(v) == 2
        assert other.run(v) == 1
