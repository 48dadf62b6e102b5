"""Runs as functions: ``make_callable``."""

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook


@pytest.fixture(params=["python", "jax", "torch"])
def graph(request):
    with rh.Graph(engine=request.param).as_default() as graph:
        x, y = rh.placeholder("x"), rh.placeholder("y")
        rh.call(lambda x, y: x * 10 + y, x, y, name="sum")
        weights = rh.Variable(np.zeros(2, np.float32), name="weights")
        count = rh.train.get_or_create_global_step().assign_add(1)
        rh.group(weights.assign_add(np.float32(1)), count, name="train_op")
        yield graph


@pytest.fixture(params=[rh.Session, rh.MonitoredSession])
def session(graph, request):
    with request.param() as session:
        yield session


def test_it_takes_the_values_of_its_tensors_in_order(session) -> None:
    added = session.make_callable("sum:0", ["x:0", "y:0"])
    swapped = session.make_callable({"sum": ["sum:0"]}, ("y:0", "x:0"))
    assert [float(added(1, 2)), float(added(3, 4))] == [12, 34]
    assert float(swapped(1, 2)["sum"][0]) == 21


def test_it_trains(session) -> None:
    train = session.make_callable("train_op")
    assert [train() for _ in range(3)] == [None] * 3
    assert session.global_step == 3
    assert np.asarray(session.run("weights:0")).tolist() == [3, 3]


def test_another_number_of_values_is_an_error(session) -> None:
    added = session.make_callable("sum:0", ["x:0", "y:0"])
    with pytest.raises(TypeError, match=r"takes 2 values, of \['x:0', 'y:0'\], got 1"):
        added(1)
    with pytest.raises(TypeError):
        session.make_callable("train_op")(1)
    assert session.global_step == 0


def test_bad_arguments(session) -> None:
    with pytest.raises(TypeError, match="feed_list must be a list or tuple of tensors, got 'x:0'"):
        session.make_callable("sum:0", "x:0")
    with pytest.raises(ValueError, match="feed_list must have each tensor once"):
        session.make_callable("sum:0", ["x:0", "x:0"])
    with pytest.raises(ValueError, match="placeholder 'y:0'.*is not fed"):
        session.make_callable("sum:0", ["x:0"])(1)


def test_options_are_taken(session) -> None:
    added = session.make_callable("sum:0", ["x:0", "y:0"], accept_options=True)
    assert float(added(1, 2, options=None, run_metadata=None)) == 12
    with pytest.raises(ValueError, match="neither run options nor run metadata"):
        added(1, 2, options=object())


def test_what_its_caller_changes_later_has_no_effect(session) -> None:
    fetches, feeds = ["sum:0"], ["x:0", "y:0"]
    added = session.make_callable(fetches, feeds)
    fetches.append("weights:0")
    feeds.reverse()
    assert [float(it) for it in added(1, 2)] == [12]


def test_hooks_ride_along(graph) -> None:
    hook = RecordingHook(fetches="weights:0")
    hooks = [hook, rh.StopAtStepHook(last_step=3)]
    with rh.MonitoredSession(hooks=hooks) as session:
        train = session.make_callable(["train_op", "sum:0"], ["x:0", "y:0"])
        while not session.should_stop():
            train(1, 2)
        with pytest.raises(RuntimeError, match="StopAtStepHook"):
            train(1, 2)
    assert [np.asarray(it).tolist() for it in hook.results] == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(RuntimeError, match="closed session"):
        train(1, 2)
