"""Scaffold: the pieces that a session needs, given by the user or found in the graph."""

import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def weights(graph):
    return rh.Variable(np.zeros(2, np.float32), name="weights")


@pytest.fixture
def init_op(weights):
    return weights.assign(np.full(2, 5, np.float32))


def weights_of(scaffold, weights, **kwargs):
    creator = rh.ChiefSessionCreator(scaffold, **kwargs)
    with rh.MonitoredSession(creator) as sess:
        return sess.run(weights).tolist()


def test_init_fn_is_called_after_the_init_op_with_scaffold_and_session(weights, init_op):
    seen = []

    def init_fn(scaffold, session):
        seen.append((scaffold, session.run(weights).tolist()))

    scaffold = rh.Scaffold(init_op=init_op, init_fn=init_fn)
    weights_of(scaffold, weights)
    assert seen == [(scaffold, [5, 5])]


def test_restored_session_is_not_initialized(weights, init_op, tmp_path):
    called = []
    with rh.Session(weights.graph) as sess:
        rh.Saver().save(sess, tmp_path / "model.ckpt", global_step=1)
    scaffold = rh.Scaffold(init_op=init_op, init_fn=lambda *args: called.append(args))
    assert weights_of(scaffold, weights, checkpoint_dir=tmp_path) == [0, 0]
    assert called == []


def test_local_init_op_is_run_in_every_session(weights, tmp_path):
    local = rh.Variable(np.float32(0), name="local", collections=[rh.GraphKeys.LOCAL_VARIABLES])
    value = rh.placeholder("value")
    scaffold = rh.Scaffold(
        local_init_op=local.assign(value), local_init_feed_dict={value: np.float32(3)}
    )
    with rh.Session(weights.graph) as sess:
        rh.Saver().save(sess, tmp_path / "model.ckpt", global_step=1)
    for directory in (None, tmp_path):
        creator = rh.ChiefSessionCreator(scaffold, checkpoint_dir=directory)
        with rh.MonitoredSession(creator) as sess:
            assert sess.run(local) == 3


@pytest.mark.parametrize("argument", ["ready_op", "ready_for_local_init_op"])
def test_session_that_is_not_ready_is_an_error_giving_the_reason(argument, weights):
    scaffold = rh.Scaffold(**{argument: rh.inputs([["weights"]])})
    with pytest.raises(rh.errors.FailedPreconditionError, match=rf"{argument}.*weights"):
        weights_of(scaffold, weights)


def test_session_is_not_ready_where_the_answer_is_false(weights):
    scaffold = rh.Scaffold(ready_op=rh.call(lambda w: (w > 0).all(), weights))
    with pytest.raises(rh.errors.FailedPreconditionError, match="ready_op .*False"):
        weights_of(scaffold, weights)


@pytest.mark.parametrize("answer", [[], np.array([], str), None])
def test_session_is_ready_when_nothing_is_missing(weights, init_op, answer):
    scaffold = rh.Scaffold(init_op=init_op, ready_op=rh.inputs([answer]))
    assert weights_of(scaffold, weights) == [5, 5]


def test_an_operation_may_say_that_the_session_is_ready(weights, init_op):
    scaffold = rh.Scaffold(ready_op=rh.group(weights), ready_for_local_init_op=init_op.op)
    assert weights_of(scaffold, weights) == [5, 5]


def test_local_init_op_is_run_when_the_variables_are_ready_for_it(weights, init_op):
    local = rh.Variable(
        np.zeros(2, np.float32), name="local", collections=[rh.GraphKeys.LOCAL_VARIABLES]
    )
    scaffold = rh.Scaffold(
        init_op=init_op,
        ready_for_local_init_op=rh.call(lambda w: (w > 0).all(), weights),
        local_init_op=local.assign(weights),
        ready_op=rh.call(lambda value: (value > 0).all(), local),
    )
    assert weights_of(scaffold, local) == [5, 5]


def test_finalize_makes_the_graph_final_and_fills_in_saver_and_summaries(weights, graph):
    rh.summary.scalar("norm", rh.call(lambda w: w.sum(), weights))
    scaffold = rh.Scaffold().finalize()
    assert graph.finalized
    assert isinstance(scaffold.saver, rh.Saver)
    with rh.Session(graph) as sess:
        assert b"norm" in sess.run(scaffold.summary_op).SerializeToString()


def test_pieces_are_found_in_the_collections_of_the_graph(weights, init_op, graph):
    graph.add_to_collection(rh.GraphKeys.INIT_OP, init_op)
    saver = rh.Saver(max_to_keep=2)
    graph.add_to_collection(rh.GraphKeys.SAVERS, saver)
    scaffold = rh.Scaffold()
    assert weights_of(scaffold, weights) == [5, 5]
    assert scaffold.saver is saver


def test_two_pieces_in_a_collection_are_an_error_saying_which_to_give(weights, init_op, graph):
    for _ in range(2):
        graph.add_to_collection(rh.GraphKeys.INIT_OP, init_op)
    with pytest.raises(RuntimeError, match="init_op"):
        rh.Scaffold().finalize()


def test_copy_keeps_the_pieces_that_are_not_given_anew(weights, init_op):
    called = []
    original = rh.Scaffold(init_op=init_op, init_fn=lambda scaffold, sess: called.append(scaffold))
    saver = rh.Saver()
    copy = rh.Scaffold(copy_from_scaffold=original, saver=saver)
    assert weights_of(copy, weights) == [5, 5]
    assert called == [copy]
    assert copy.saver is saver
