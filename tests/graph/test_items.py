"""Items and attributes of tensors: their names, and what a mistake in them says."""

import numpy as np
import pytest

import runhooks as rh

pytestmark = pytest.mark.every_engine


def metrics():
    return {"loss": np.float32(1), "accuracy": np.float32(0.5)}


def test_item_is_named_by_what_it_is(graph):
    result = rh.call(metrics, name="metrics")
    pair = rh.inputs([(1, 2)], name="batch")
    assert result["loss"].name == "metrics/loss:0"
    assert result["loss"].name == "metrics/loss_1:0"
    assert pair[1].name == "batch/1:0"
    assert pair[::2].name == "getitem:0"
    with rh.name_scope("model"):
        state = rh.Variable({"w": {"b": np.zeros(2)}}, name="state")
        assert state["w"]["b"].name == "model/state/w/b:0"


@pytest.mark.parametrize(
    ("make", "key", "error", "message"),
    [
        (metrics, "los", KeyError, "'loss'"),
        (lambda: (np.zeros(1), np.zeros(1)), 2, IndexError, "index|range"),
    ],
)
def test_unknown_item_of_a_result_names_the_line(make, key, error, message, graph):
    wrong = rh.call(make, name="metrics")[key]
    with rh.Session(graph) as session, pytest.raises(error, match=message) as caught:
        session.run(wrong)
    assert any("test_items.py:" in note for note in caught.value.__notes__)


def test_unknown_item_of_a_variable_is_refused_at_once(graph):
    state = rh.Variable({"params": np.zeros(2)}, name="state")
    with pytest.raises(KeyError, match="did you mean 'params'"):
        state["parms"]


def test_attribute_of_a_value_names_the_cure(graph):
    state = rh.Variable({"params": np.zeros(2)}, name="state")
    with pytest.raises(AttributeError, match=r"'state:0'.*'params'.*rh\.call"):
        state.params  # noqa: B018
    assert not hasattr(state, "shape")
    assert not hasattr(state, "_private")


@pytest.mark.parametrize("value", ["text", {"w": np.array(["a"]), "fn": len}, [object()]])
def test_initial_value_is_checked_where_the_variable_is_made(value, graph):
    with pytest.raises(TypeError, match="'v'"):
        rh.Variable(value, name="v")
    assert graph.get_operations() == []
    made = rh.Variable(lambda: value, name="v")  # a function gives it when a session needs it
    with rh.Session(graph) as session, pytest.raises(TypeError, match="'v'"):
        session.run(made)
