"""``random_key``: a fresh key in each run that needs it, the same ones in each repetition."""

from functools import partial

import numpy as np
import pytest
import torch

import runhooks as rh
from runhooks.arrays import to_numpy
from tests.graph.sources import uniform

pytestmark = pytest.mark.every_engine


@pytest.fixture
def drawn(engine):
    """From a key to a tensor of three numbers drawn with it."""
    return lambda key: rh.call(partial(uniform, engine), key, name="drawn")


def rows(sess, fetch, runs):
    return np.array([to_numpy(sess.run(fetch)) for _ in range(runs)])


def all_differ(rows):
    return len(np.unique(rows, axis=0)) == len(rows)


def test_each_run_has_a_key_of_its_own_and_each_session_the_same_ones(graph, drawn):
    numbers = drawn(rh.random_key())
    with rh.Session(graph) as one, rh.Session(graph) as other:
        first = rows(one, numbers, 5)
        assert all_differ(first)
        np.testing.assert_array_equal(first, rows(other, numbers, 5))


def test_same_graph_built_again_has_the_same_keys(engine, drawn):
    def numbers():
        with rh.Graph(engine).as_default() as graph:
            fetch = drawn(rh.random_key(seed=3, name="dropout"))
            with rh.Session(graph) as sess:
                return rows(sess, fetch, 3)

    np.testing.assert_array_equal(numbers(), numbers())


def test_keys_of_one_graph_and_of_other_seeds_differ(graph, engine, drawn):
    keys = [rh.random_key(), rh.random_key(), rh.random_key(name="mask"), rh.random_key(seed=1)]
    with rh.Session(graph) as sess:
        found = sess.run([drawn(key) for key in keys])
    for seed in (1, 2**32 - 1):
        with rh.Graph(engine).as_default() as other, rh.Session(other) as sess:
            found.append(sess.run(drawn(rh.random_key(seed))))
    assert all_differ(np.array([np.asarray(it) for it in found]))


def test_all_who_take_it_in_one_run_draw_the_same_whoever_else_does(graph, drawn):
    key = rh.random_key()
    watched, trained = drawn(key), drawn(key)
    with rh.Session(graph) as alone, rh.Session(graph) as beside:
        expected = rows(alone, trained, 3)
        both = rows(beside, [watched, trained], 3)
    np.testing.assert_array_equal(both[:, 0], expected)
    np.testing.assert_array_equal(both[:, 1], expected)


def test_fetched_key_is_the_one_that_was_used(graph, drawn):
    key = rh.random_key()
    numbers, again = drawn(key), drawn(rh.placeholder("key"))
    with rh.Session(graph) as sess:
        used, expected = sess.run([key, numbers])
        np.testing.assert_array_equal(sess.run(again, {"key:0": used}), expected)


def test_kind_of_key_is_that_of_the_engine(graph, engine):
    key = rh.random_key()
    with rh.Session(graph) as sess:
        if engine == "python":
            assert isinstance(sess.run(key), np.random.Generator)
        elif engine == "torch":
            assert isinstance(sess.run(key), torch.Generator)
        elif engine == "jax":
            import jax

            assert jax.dtypes.issubdtype(sess.run(key).dtype, jax.dtypes.prng_key)


def test_run_that_does_not_need_it_draws_none(graph, drawn):
    numbers, other = drawn(rh.random_key()), rh.Variable(0.0)
    with rh.Session(graph) as sess, rh.Session(graph) as undisturbed:
        sess.run(other)
        np.testing.assert_array_equal(rows(sess, numbers, 2), rows(undisturbed, numbers, 2))


def test_key_that_is_fed_draws_none(graph, drawn):
    key = rh.random_key()
    numbers = drawn(key)
    with rh.Session(graph) as sess, rh.Session(graph) as undisturbed:
        first = sess.run(key)
        fed = [sess.run(numbers, {key: first}) for _ in range(2)]
        np.testing.assert_array_equal(*fed)
        expected = rows(undisturbed, numbers, 2)
        np.testing.assert_array_equal(fed[0], expected[0])
        np.testing.assert_array_equal(sess.run(numbers), expected[1])


def test_run_that_raises_gives_the_same_key_again(graph, drawn):
    numbers, batch = drawn(rh.random_key()), rh.placeholder("batch")
    checked = rh.call(lambda x, b: x / b.shape[0] if b.ndim else 1 / 0, numbers, batch)
    with rh.Session(graph) as sess, rh.Session(graph) as undisturbed:
        sess.run(numbers)
        with pytest.raises(ZeroDivisionError):
            sess.run(checked, {batch: np.float32(1)})
        np.testing.assert_array_equal(sess.run(numbers), rows(undisturbed, numbers, 2)[1])


def test_checkpoint_brings_back_the_next_key(graph, drawn, tmp_path):
    numbers = drawn(rh.random_key(name="dropout"))
    with rh.Session(graph) as sess, rh.Session(graph) as resumed:
        sess.run(numbers)
        path = rh.Saver().save(sess, tmp_path / "model.ckpt")
        assert sess.snapshot().arrays["dropout/runs"] == 1
        expected = rows(sess, numbers, 2)
        rh.Saver().restore(resumed, path)
        np.testing.assert_array_equal(rows(resumed, numbers, 2), expected)


def test_names_are_of_the_scope_it_is_made_in_and_nothing_is_to_train(graph):
    with rh.name_scope("model"):
        keys = [rh.random_key(name="dropout") for _ in range(2)]
    assert [key.name for key in keys] == ["model/dropout/key:0", "model/dropout_1/key:0"]
    assert graph.get_collection(rh.GraphKeys.TRAINABLE_VARIABLES) == []


def test_it_is_drawn_in_a_step_that_is_compiled_once(graph, drawn):
    traced = []

    def step(weights, noise):
        traced.append(1)
        return weights + noise

    weights = rh.Variable(np.zeros(3), name="weights")
    new = weights.assign(rh.call(step, weights, drawn(rh.random_key())))
    train_op = rh.group(new, rh.train.create_global_step().assign_add(1))
    with rh.Session(graph) as sess:
        for _ in range(4):
            sess.run(train_op)
        assert sess.global_step == 4
    assert len(traced) == (1 if graph.engine.name == "jax" else 4)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_of_more_than_32_bits_is_refused(seed, graph):
    with pytest.raises(ValueError, match=f"seed.*{seed}"):
        rh.random_key(seed)


def test_seed_must_be_an_integer(graph):
    with pytest.raises(TypeError):
        rh.random_key(1.5)
