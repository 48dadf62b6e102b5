"""Requests that are merged in every run: what is asked for may change from run to run."""

from typing import Any

import numpy as np
import pytest

import runhooks as rh


class Asking(rh.SessionRunHook):
    """Asks for what it is told to."""

    def __init__(self, fetches: Any) -> None:
        self.fetches = fetches
        self.results: list[Any] = []

    def before_run(self, run_context: rh.SessionRunContext) -> rh.SessionRunArgs:
        return rh.SessionRunArgs(self.fetches)

    def after_run(self, run_context: rh.SessionRunContext, run_values: rh.SessionRunValues) -> None:
        self.results.append(run_values.results)


@pytest.fixture
def graph():
    with rh.Graph().as_default() as graph:
        for name in ("one", "two", "three"):
            value = float(len(name))
            rh.call(lambda value=value: np.float64(value), name=name)
        yield graph


def test_a_dict_that_a_hook_changes_in_place_is_read_anew(graph) -> None:
    asked = {"a": "one:0"}
    hook = Asking(asked)
    with rh.MonitoredSession(hooks=[hook]) as session:
        session.run("two:0")
        asked["b"] = "three:0"
        session.run("two:0")
        asked["a"] = "three:0"
        session.run("two:0")
        del asked["b"]
        session.run("two:0")
    assert hook.results == [{"a": 3}, {"a": 3, "b": 5}, {"a": 5, "b": 5}, {"a": 5}]


@pytest.mark.parametrize("nested", [False, True])
def test_a_list_that_its_caller_changes_in_place_is_read_anew(graph, nested: bool) -> None:
    inner: list[Any] = ["one:0"]
    fetches = (inner, "two:0") if nested else inner
    hooks = [Asking("two:0"), Asking(("three:0", "three:0"))]
    with rh.MonitoredSession(hooks=hooks) as session:
        results = [session.run(fetches)]
        inner.append("three:0")
        results += [session.run(fetches), session.run(fetches)]
        inner[0] = "three:0"
        results.append(session.run(fetches))
    lists = [it[0] if nested else it for it in results]
    assert lists == [[3], [3, 5], [3, 5], [5, 5]]
    assert hooks[0].results == [3] * 4
    assert hooks[1].results == [(5, 5)] * 4


def test_what_is_asked_for_alternates(graph) -> None:
    hook, other = Asking("one:0"), Asking(None)
    with rh.MonitoredSession(hooks=[hook, other]) as session:
        for fetches in ("one:0", "three:0", ["one:0", "three:0"], "one:0"):
            hook.fetches = fetches
            session.run("two:0")
            session.run(("two:0", "one:0"))
    assert hook.results == [3, 3, 5, 5, [3, 5], [3, 5], 3, 3]
    assert other.results == [None] * 8


@pytest.mark.parametrize("late", [False, True])
def test_a_watched_value_beside_fetches_that_change(graph, late: bool) -> None:
    fetches: list[Any] = ["two:0"]
    with rh.MonitoredSession(hooks=[rh.NanTensorHook("one:0", late=late)]) as session:
        assert session.run(fetches) == [3]
        fetches.append("three:0")
        assert session.run(fetches) == [3, 5]
        assert session.run({"a": "three:0"}) == {"a": 5}
        assert session.run({"b": "three:0"}) == {"b": 5}
