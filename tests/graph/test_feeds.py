"""Feeds: any tensor can be fed; a wrong feed is answered before anything runs."""

import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def sess(graph):
    with rh.Session(graph) as sess:
        yield sess


@pytest.mark.every_engine
def test_placeholder_gets_its_value_in_that_run_alone(sess):
    x = rh.placeholder("x")
    assert sess.run([x * 2, x], {x: 3}) == [6, 3]
    assert sess.run(x * 2, {"x:0": 4}) == 8
    with pytest.raises(ValueError, match="x:0"):
        sess.run(x)


@pytest.mark.every_engine
def test_placeholder_may_hold_a_pytree(sess):
    batch = rh.placeholder("batch")
    total = rh.call(lambda b: b["x"] + b["y"][0], batch)
    assert sess.run(total, {batch: {"x": 1, "y": (2,)}}) == 3


@pytest.mark.every_engine
def test_fed_tensor_is_not_computed(sess):
    computed = []
    x = rh.call(lambda: computed.append(1) or 1.0)
    assert sess.run(x + 1, {x: 10.0}) == 11
    assert computed == []


@pytest.mark.every_engine
def test_fed_variable_is_read_as_fed_and_keeps_its_value(sess):
    v = rh.Variable(1.0, name="v")
    assert sess.run(v * 2, {v: 10.0}) == 20
    assert sess.run(v) == 1


@pytest.mark.every_engine
def test_fed_global_step_is_used_in_that_run_alone(sess):
    step = rh.train.create_global_step()
    assert sess.run(step + 0, {step: 7}) == 7
    assert sess.global_step == 0


def test_fed_input_draws_nothing(sess):
    number = rh.inputs([1, 2])
    assert sess.run(number, {number: 100}) == 100
    assert sess.run(number) == 1


@pytest.mark.every_engine
def test_one_output_of_several_can_be_fed(sess):
    a, b = rh.call(lambda: (1, 2), num_outputs=2)
    assert sess.run([a, b], {a: 10}) == [10, 2]


@pytest.mark.every_engine
def test_what_fits_a_fixed_shape_and_dtype_is_taken(sess):
    x = rh.placeholder("x", dtype=np.float32, shape=(None, 2))
    for fed in (np.ones((1, 2), np.float32), np.ones((3, 2)), [[1, 2.5]]):
        taken = sess.run(x, {x: fed})
        np.testing.assert_array_equal(taken, fed)
        assert taken.dtype == np.float32


@pytest.mark.every_engine
def test_fed_array_may_be_changed_by_the_caller_afterwards(sess):
    x = rh.placeholder("x")
    v = rh.Variable(np.zeros(2, np.float32), name="v")
    fed = np.ones(2, np.float32)
    sess.run(v.assign(x), {x: fed})
    fed[:] = 9
    np.testing.assert_array_equal(sess.run(v), [1, 1])


# wrong feeds: one error each, before anything runs


@pytest.fixture
def fixed(sess):
    return rh.placeholder("images", dtype=np.float32, shape=(None, 2))


def test_unfed_placeholder_is_named_with_what_needs_it(sess, fixed):
    loss = rh.call(lambda x: x, fixed, name="loss")
    with pytest.raises(ValueError, match=r"'images:0'.*'loss'.*feed_dict"):
        sess.run(loss)
    assert sess.run(rh.call(lambda: 1.0)) == 1


@pytest.mark.parametrize("shape", [(2,), (3, 3), (1, 2, 1)], ids=str)
def test_wrong_shape_is_shown_beside_the_right_one(shape, sess, fixed):
    with pytest.raises(ValueError, match="images:0") as caught:
        sess.run(fixed, {fixed: np.ones(shape, np.float32)})
    assert str(list(shape)) in str(caught.value)
    assert "[any, 2]" in str(caught.value)


@pytest.mark.every_engine
@pytest.mark.parametrize(
    "value", [np.ones((1, 2), np.complex64), np.array([["a", "b"]]), [["a", "b"]]], ids=repr
)
def test_wrong_dtype_is_shown_beside_the_right_one(value, sess, fixed):
    with pytest.raises((TypeError, ValueError), match="images:0") as caught:
        sess.run(fixed, {fixed: value})
    assert "float32" in str(caught.value)
    assert str(np.asarray(value).dtype) in str(caught.value)


@pytest.mark.every_engine
def test_float_is_not_cut_to_fit_an_integer_placeholder(sess):
    labels = rh.placeholder("labels", dtype=np.int32)
    with pytest.raises((TypeError, ValueError), match="labels:0"):
        sess.run(labels, {labels: np.array([1.5])})


def test_tensor_of_another_graph_is_refused_as_feed_and_as_fetch(sess, engine):
    mine = rh.placeholder("mine")
    with rh.Graph(engine=engine).as_default():
        foreign = rh.placeholder("foreign")
    with pytest.raises(ValueError, match=r"feed_dict.*'foreign:0'"):
        sess.run(mine, {mine: 1, foreign: 1})
    with pytest.raises(ValueError, match=r"fetches.*'foreign:0'"):
        sess.run([mine, foreign], {mine: 1})


@pytest.mark.parametrize(
    ("fetches", "feeds", "argument"),
    [("imges:0", {}, "fetches"), ("images:0", {"imges:0": 1}, "feed_dict")],
    ids=["fetch", "feed"],
)
def test_unknown_name_is_answered_with_the_argument_and_a_near_name(
    fetches, feeds, argument, sess, fixed
):
    with pytest.raises(ValueError, match="'imges:0'") as caught:
        sess.run(fetches, feeds)
    assert argument in str(caught.value)
    assert "'images:0'" in str(caught.value)


@pytest.mark.parametrize(
    ("feeds", "error", "message"),
    [
        (lambda images: {3: 1}, TypeError, "feed_dict"),
        (lambda images: {None: 1}, TypeError, "feed_dict"),
        (lambda images: {("images:0",): 1}, TypeError, "feed_dict"),
        (lambda images: {images.op: 1}, TypeError, "'images'"),
        (lambda images: {images: [[1, 2]], "images:0": [[1, 2]]}, ValueError, "'images:0'.*twice"),
        (lambda images: images + 1, TypeError, "feed_dict"),
        (lambda images: [images], TypeError, "feed_dict"),
        (lambda images: 5, TypeError, "feed_dict"),
    ],
)
def test_what_is_no_feed_is_refused(feeds, error, message, sess, fixed):
    with pytest.raises(error, match=message):
        sess.run(fixed, feeds(fixed))


def test_wrong_feed_is_found_before_an_input_is_drawn(sess, fixed):
    number = rh.inputs([1, 2])
    with pytest.raises(ValueError, match="images:0"):
        sess.run([number, fixed], {fixed: np.ones(5, np.float32)})
    assert sess.run(number) == 1


def test_arguments_of_a_placeholder_in_another_order_are_refused(graph):
    with pytest.raises(TypeError, match="name must be a str, got .*look at the order"):
        rh.placeholder(np.float32, [None, 2])


@pytest.mark.every_engine
def test_whole_numbers_are_fed_by_their_values(graph):
    x = rh.placeholder("x", dtype=np.uint8)
    with rh.Session(graph) as sess:
        np.testing.assert_array_equal(sess.run(rh.call(lambda x: x, x), {x: [1, 255]}), [1, 255])
        with pytest.raises(ValueError, match="'x:0'.*uint8"):
            sess.run(x, {x: [1, 256]})


def test_a_list_of_numbers_becomes_an_array_after_one_of_other_things_too():
    def step(total, x):
        return total, {"kind": type(x).__name__}

    with rh.graph(step, ["kind"], total=0).as_default():
        session = rh.Session()
        fed = [1.0, 2.0], [{"other": 1}], [1.0, 2.0]
        kinds = [session.run("kind", {"x": value}) for value in fed]
    assert kinds == ["ndarray", "list", "ndarray"]


def test_ragged_list_is_told_with_the_tensor(graph):
    x = rh.placeholder("x")
    with rh.Session(graph) as sess, pytest.raises(ValueError, match="'x:0'"):
        sess.run(x, {x: [[1, 2], [3]]})


def product(w, x, y):
    return w, {"loss": (x @ w).sum() + y["weight"].sum()}


@pytest.mark.every_engine
def test_an_error_out_of_a_step_says_what_the_run_was_fed_or_has_drawn(engine):
    x, y = np.ones((4, 3), np.float32), {"weight": np.ones(4, np.float32)}
    w = np.zeros(2, np.float32)
    if engine == "torch":
        import torch

        x, y = torch.tensor(x), {"weight": torch.tensor(y["weight"])}
    fed = rh.graph(product, w=w, engine=engine)
    drawing = rh.graph(product, w=w, engine=engine, data=lambda: [(x, y)])
    for graph, feed_dict, note in (
        (fed, {"x": x, "y": y}, "was fed 'x': float32[4, 3], 'y': {'weight': float32[4]}"),
        (drawing, None, "has drawn float32[4, 3], {'weight': float32[4]} from 'data'"),
        (drawing, {"data:0": x}, "was fed 'data': float32[4, 3]"),
    ):
        with graph.as_default(), rh.Session() as session:
            with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
                session.run("train_op", feed_dict)
        assert f"the run {note}" in raised.value.__notes__
