"""Names: unique, scoped, and found again; a wrong one is answered with those that are near."""

import numpy as np
import pytest

import runhooks as rh


def test_tensors_are_named_for_their_operation_and_found_by_name(graph):
    x, state = rh.placeholder("x"), rh.Variable(1.0, name="state")
    assert (x.name, x.op.name, state.name, state.op.name) == ("x:0", "x", "state:0", "state")
    assert x.op.outputs[0] is x
    assert x.graph is graph
    assert graph.get_tensor_by_name("x:0") is x
    assert graph.get_operation_by_name("x") is x.op
    assert graph.as_graph_element("x:0") is graph.as_graph_element(x) is x
    assert graph.as_graph_element("x") is x.op


def test_second_use_of_a_name_gets_a_number_that_is_free(graph):
    rh.placeholder("loss_1")
    names = [rh.placeholder("loss").op.name for _ in range(3)]
    assert names == ["loss", "loss_2", "loss_3"]
    one, other = rh.call(abs, 1), rh.call(abs, 1)
    assert one.name != other.name


def test_scopes_prefix_names(graph):
    with rh.name_scope("train"):
        outer = rh.placeholder("x")
        with rh.name_scope("loss"):
            inner = rh.placeholder("x")
    after = rh.placeholder("x")
    assert (outer.name, inner.name, after.name) == ("train/x:0", "train/loss/x:0", "x:0")


def test_scope_opened_twice_keeps_names_unique(graph):
    names = []
    for _ in range(2):
        with rh.name_scope("train"):
            names.append(rh.placeholder("x").name)
    assert names == ["train/x:0", "train_1/x:0"]


def test_names_of_one_graph_do_not_touch_another(graph, engine):
    rh.placeholder("x")
    with rh.Graph(engine=engine).as_default():
        assert rh.placeholder("x").name == "x:0"


@pytest.mark.parametrize(
    ("look_up", "name", "near"),
    [
        ("get_tensor_by_name", "los:0", "loss:0"),
        ("get_tensor_by_name", "loss:1", "loss:0"),
        ("get_tensor_by_name", "loss", "loss:0"),
        ("get_operation_by_name", "lss", "loss"),
        ("get_operation_by_name", "loss:0", "loss"),
    ],
)
def test_wrong_name_is_answered_with_a_near_one(look_up, name, near, graph):
    rh.placeholder("loss")
    with pytest.raises((KeyError, ValueError)) as caught:
        getattr(graph, look_up)(name)
    assert repr(name) in str(caught.value)
    assert repr(near) in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "/x", "x:0", "état\n"])
def test_name_that_could_not_be_looked_up_is_refused(name, graph):
    with pytest.raises(ValueError, match="name"):
        rh.placeholder(name)


def test_operations_are_listed_in_the_order_they_were_made(graph):
    x = rh.placeholder("x")
    y = rh.call(abs, x, name="y")
    done = rh.group(y, name="done")
    assert graph.get_operations() == [x.op, y.op, done]
    assert y.op.inputs == (x,) or list(y.op.inputs) == [x]
    assert list(done.control_inputs) == [y.op]


def test_collections_keep_what_was_added(graph):
    x = rh.placeholder("x")
    graph.add_to_collection("mine", x)
    assert graph.get_collection("mine") == [x]
    assert graph.get_collection("empty") == []
    graph.get_collection("mine").append("a copy")
    assert graph.get_collection("mine") == [x]
    graph.get_collection_ref("mine").append("the list itself")
    assert graph.get_collection("mine") == [x, "the list itself"]


def test_variables_are_in_their_collections(graph):
    weights = rh.Variable(1.0, name="weights")
    count = rh.Variable(0, name="count", trainable=False)
    assert graph.get_collection(rh.GraphKeys.GLOBAL_VARIABLES) == [weights, count]
    assert graph.get_collection(rh.GraphKeys.TRAINABLE_VARIABLES) == [weights]


ADDING = {
    "placeholder": lambda v: rh.placeholder("p"),
    "variable": lambda v: rh.Variable(1.0),
    "call": lambda v: rh.call(abs, v),
    "operator": lambda v: v + 1,
    "assign": lambda v: v.assign(2.0),
    "inputs": lambda v: rh.inputs([1]),
    "group": lambda v: rh.group(v),
    "summary": lambda v: rh.summary.scalar("v", v),
    "global step": lambda v: rh.train.create_global_step(),
    "collection": lambda v: rh.get_default_graph().add_to_collection("c", v),
}


@pytest.mark.parametrize("what", ADDING)
def test_nothing_can_be_added_to_a_finalized_graph(what, graph):
    v = rh.Variable(1.0, name="v")
    graph.finalize()
    assert graph.finalized
    before = graph.get_operations()
    with pytest.raises(RuntimeError, match="final"):
        ADDING[what](v)
    assert graph.get_operations() == before


def test_unknown_engine_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="engine.*'jax'"):
        rh.Graph(engine="jaxx")


def test_default_graph_of_before_is_back_after_a_nested_one():
    outer, inner = rh.Graph(), rh.Graph()
    with outer.as_default(), inner.as_default():
        with outer.as_default():
            assert rh.get_default_graph() is outer
        assert rh.get_default_graph() is inner


def test_names_of_what_a_step_is_made_of_are_not_suggested():
    graph = rh.graph(lambda w: (w + 1, {"loss": w}), w=np.zeros(()))
    with rh.Session(graph) as sess:
        for name in ("train_opp", "count"):
            with pytest.raises(ValueError, match="nothing is named") as caught:
                sess.run(name)
            assert "train_op/" not in str(caught.value)
