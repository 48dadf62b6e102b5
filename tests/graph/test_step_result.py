"""Where the states are in the result of a step: names, identity or order decide, forms only check.

Most states here have one form, so that nothing but the rule can tell them apart.
"""

import collections
import dataclasses
import itertools
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh


def run(graph, steps, fetches):
    """Make steps; return what each gave for ``fetches``."""
    with graph.as_default(), rh.MonitoredSession() as session:
        return [session.run(["train_op", fetches])[1] for _ in range(steps)]


def refusal(graph):
    with pytest.raises(ValueError, match="w") as caught:
        run(graph, 1, "global_step")
    return str(caught.value)


STATES = ["average", "weights", "momentum", "w"]
OUTPUTS = ["loss", "grads", "accuracy"]


class Result(NamedTuple):
    average: float
    weights: float
    loss: float


def kinds_of_names(names):
    return {
        "dict": dict,
        "ordered": collections.OrderedDict,
        "named tuple": lambda items: collections.namedtuple("Result", names)(**items),
        "dataclass": lambda items: dataclasses.make_dataclass("Result", names)(**items),
    }


@st.composite
def programs(draw):
    """States in the order of the parameters, outputs, all names in another order, and a kind."""
    states = draw(st.permutations(STATES))[: draw(st.integers(1, 4))]
    outputs = OUTPUTS[: draw(st.integers(0, 3))]
    order = draw(st.permutations([*states, *outputs]))
    kind = draw(st.sampled_from(["dict", "ordered", "named tuple", "dataclass"]))
    return states, outputs, order, kind


def step_of(states, result):
    """A step that adds i + 1 to state i, and returns ``result`` of the values of all names."""

    def step(**now):
        new = {name: now[name] + i + 1 for i, name in enumerate(states)}
        return result(new | {name: 100.0 + i for i, name in enumerate(OUTPUTS)})

    scope = {"step": step}
    given = ", ".join(f"{name}={name}" for name in states)
    exec(f"def train({', '.join(states)}): return step({given})", scope)
    return scope["train"]


def check(states, outputs, graph):
    got = run(graph, 2, [*states, *outputs])[-1]
    assert got == [*range(1, len(states) + 1), *[100 + OUTPUTS.index(it) for it in outputs]]


@settings(deadline=None)
@given(programs())
def test_names_decide_in_any_order(program):
    states, outputs, order, kind = program
    make = kinds_of_names(order)[kind]
    train = step_of(states, lambda values: make({name: values[name] for name in order}))
    start = dict.fromkeys(states, 0.0)
    check(states, outputs, rh.graph(train, **start))
    check(states, outputs, rh.graph(train, outputs[::-1], **start))


@settings(deadline=None)
@given(programs(), st.sampled_from([tuple, list]))
def test_otherwise_the_states_come_first_in_the_order_of_the_parameters(program, kind):
    states, outputs, _, _ = program
    start = dict.fromkeys(states, 0.0)
    train = step_of(states, lambda values: kind(values[it] for it in [*states, *outputs]))
    check(states, outputs, rh.graph(train, outputs, **start))
    train = step_of(
        states, lambda values: (*[values[it] for it in states], {it: values[it] for it in outputs})
    )
    check(states, outputs, rh.graph(train, **start))


@settings(deadline=None)
@given(programs(), st.integers(0, 7), st.integers(0, 7))
def test_outputs_name_all_elements_in_any_order_and_nesting(program, begin, size):
    states, outputs, order, _ = program
    order = list(order)
    names = [*order[:begin], tuple(order[begin : begin + size]), *order[begin + size :]]
    names = [it for it in names if it != ()]

    def nested(values):
        return tuple(
            [values[it] for it in name] if isinstance(name, tuple) else values[name]
            for name in names
        )

    train = step_of(states, nested)
    if names == states:
        return  # the name of the whole result
    check(states, outputs, rh.graph(train, names, **dict.fromkeys(states, 0.0)))


def returning(result):
    """A step that returns what ``result`` makes of the new states."""

    def step(w, v):
        return result(w + 1, v + 1)

    return step


@pytest.mark.parametrize(
    ("result", "outputs", "fetched"),
    [
        (lambda w, v: (w, v), [], {}),
        (lambda w, v: (w, v, 5.0), [], {"output": 5}),
        (lambda w, v: (w, v, 5.0), ["loss"], {"loss": 5}),
        (lambda w, v: (w, v, {"loss": 5.0}), [], {"loss": 5}),
        (lambda w, v: (w, v, {"loss": 5.0}), ["all"], {"all/loss": 5}),
        (lambda w, v: (w, v, None), [], {}),
        (lambda w, v: (w, v, 5.0, 6.0), [], {"output/0": 5, "output/1": 6}),
        (lambda w, v: (w, v, (5.0, 6.0)), ["loss", "more"], {"loss": 5, "more": 6}),
        (lambda w, v: (w, v, (5.0, 6.0), 7.0), [("loss", "more"), "x"], {"loss": 5, "x": 7}),
        (lambda w, v: (w, v, w, v), ["grads", "more"], {}),
        (lambda w, v: (-w, v, 5.0, w), ["grads", "v", "loss", "w"], {"loss": 5}),
        (lambda w, v: ([5.0, 6.0], [w, v]), [["loss", "x"], ["w", "v"]], {"loss": 5, "x": 6}),
    ],
)
def test_states_are_found_in_the_result_and_the_rest_are_outputs(result, outputs, fetched):
    graph = rh.graph(returning(result), outputs, w=np.zeros(2), v=np.zeros(3))
    values = run(graph, 2, {"w": "w", "v": "v", **{name: name for name in fetched}})
    assert values[1]["w"].tolist() == [1, 1]
    assert values[1]["v"].tolist() == [1, 1, 1]
    assert {name: values[1][name] for name in fetched} == fetched


@pytest.mark.parametrize(
    ("start", "result", "outputs"),
    [
        (np.zeros(2), lambda w: w + 1, []),
        ([np.zeros(2)], lambda w: [w[0] + 1], ["w"]),
        ([np.zeros(2)], lambda w: ([w[0] + 1],), []),
        ((np.zeros(2), np.zeros(2)), lambda w: (w[0] + 1, w[1]), ["w"]),
        ((np.zeros(2), np.zeros(2)), lambda w: (5.0, (w[0] + 1, w[1])), ["loss", "w"]),
        ({"w": np.zeros(2)}, lambda w: {"w": w["w"] + 1}, ["w"]),
        ({"w": np.zeros(2)}, lambda w: ({"w": w["w"] + 1},), []),
        ({"w": np.zeros(2)}, lambda w: {"w": {"w": w["w"] + 1}, "loss": 5.0}, []),
    ],
)
def test_a_state_alone_is_the_result_unless_that_is_a_tuple(start, result, outputs):
    (before, after) = run(rh.graph(lambda w: result(w), outputs, w=start), 2, "w")
    for values, expected in ((before, 0), (after, 1)):
        while not isinstance(values, np.ndarray):
            values = next(iter(values.values())) if isinstance(values, dict) else values[0]
        assert values.tolist() == [expected] * 2


def state(*shape):
    return {"a": np.zeros(shape), "b": np.zeros(shape)}


@pytest.mark.parametrize(
    ("result", "outputs", "line"),
    [
        (lambda w, v: (5.0, w, v), [], ["loss", "w", "v"]),
        (lambda w, v: (5.0, w, v), ["cost"], ["cost", "w", "v"]),
        (lambda w, v: (v, w), [], ["v", "w"]),
        (lambda w, v: (v, w, 5.0, 6.0), [], ["v", "w", "output_0", "output_1"]),
        (lambda w, v: ((w, v), (5.0, 6.0)), [], [("w", "v"), "loss"]),
        (lambda w, v: (5.0, (v, 6.0, w)), [], ["output_0", ("v", "output_1", "w")]),
    ],
)
@pytest.mark.parametrize("form", [np.zeros, state])
def test_error_prints_the_line_to_write_and_the_line_is_right(result, outputs, line, form):
    w, v = form(2), form(3)

    def step(w, v):
        plus = (lambda it: it + 1) if form is np.zeros else (lambda it: {**it, "a": it["a"] + 1})
        return result(plus(w), plus(v))

    message = refusal(rh.graph(step, outputs, w=w, v=v))
    found = re.search(r"name each element, outputs=(\[.*\])$", message.splitlines()[0])
    written = eval(found[1])
    flat = [tuple(it) if isinstance(it, list) else it for it in written]
    assert flat == line
    names = ["w", "v"] if form is np.zeros else ["w/a", "v/a"]
    values = run(rh.graph(step, written, w=w, v=v), 3, names)[-1]
    assert [it.tolist() for it in values] == [[2] * 2, [2] * 3]


def test_state_alone_that_is_a_list_is_told_the_line():
    graph = rh.graph(lambda w: [w[0] + 1, w[1]], w=[np.zeros(2), np.zeros(3)])
    assert "outputs=['w']" in refusal(graph)


@pytest.mark.parametrize(
    ("result", "outputs", "message"),
    [
        (lambda w, v: w, [], "must return the new 'v'.*'v' was float64.3.: return w, v, {"),
        (lambda w, v: 5.0, [], "must return the new 'v'. It returned a float, and 'v' was"),
        (
            lambda w, v: (v, {}),
            [],
            "'w' keeps its shape .*returned .float64.3., {}.*return w, v, {",
        ),
        (lambda w, v: {"loss": 5.0}, [], r"returned {'loss': a float}"),
        (lambda w, v: None, [], "returned None"),
        (lambda w, v: (w, v[:1]), [], r"'v' keeps its shape and dtype, float64\[3\]"),
        (
            lambda w, v: (w, v, {"loss": 5.0}),
            ["los", "acc"],
            "got .'los', 'acc'.; did you .*'loss'",
        ),
        (lambda w, v: (w, v, 5.0), ["loss", "acc"], r"name what 'step' returns beside"),
        (lambda w, v: (5.0, v, w), ["loss", "v"], r"name each element of what 'step' returns, \("),
        (lambda w, v: (5.0, v, w), ["loss", "v", "x"], r"must return the new 'w'"),
    ],
)
def test_result_without_the_states_is_told_with_what_to_return(result, outputs, message):
    graph = rh.graph(returning(result), outputs, w=np.zeros(2), v=np.zeros(3))
    assert re.search(message, refusal(graph))


def test_list_that_grows_is_told_with_what_it_was():
    message = refusal(rh.graph(lambda w: ([*w, 1.0], 5.0), w=[0.0, 1.0]))
    assert "a list keeps its length, 2, and the new one has 3" in message
    assert "'w' was [float64[], float64[]]" in message


#: Results of ``a + 1, b + 1`` in forms of which a program may return now one, now another.
FORMS = {
    "by name": lambda a, b, out: {"a": a, "b": b, **out},
    "by name, turned round": lambda a, b, out: {**out, "b": b, "a": a},
    "a dict of another kind": lambda a, b, out: collections.OrderedDict(b=b, a=a, **out),
    "one by one": lambda a, b, out: (a, b, out),
    "in a list": lambda a, b, out: [a, b, out],
}


@pytest.mark.parametrize("forms", list(itertools.product(FORMS, FORMS)), ids=" then ".join)
def test_each_result_is_divided_by_the_rule(forms):
    first, later = forms

    def step(a, b):
        steps.append(int(a))
        form = FORMS[first if len(steps) <= 2 else later]
        return form(a + 1, b + 1, {"sum": a + b, "step": len(steps)})

    steps = []
    values = run(rh.graph(step, a=0, b=np.zeros(2)), 4, ["sum", "step", "a"])
    assert [it[1:] for it in values] == [[n, n - 1] for n in (1, 2, 3, 4)]
    assert [it[0].tolist() for it in values] == [[2 * n] * 2 for n in range(4)]


@pytest.mark.parametrize(
    ("then", "fetch", "message"),
    [
        (lambda w: None, "w", "the same elements in each run"),
        (lambda w: w[:1], "w", "the same elements in each run"),
        (lambda w: {"loss": 5.0}, "w", "the same elements in each run"),
        (lambda w: (w, 5.0, 5.0), "loss", "the same elements in each run"),
        (lambda w: (w, {"los": 5.0}), "loss", r"returned 'loss' in the first run, .*\['los'\]"),
    ],
)
def test_later_result_without_what_the_first_had_is_told(then, fetch, message):
    rest = iter([lambda w: (w, {"loss": 5.0}), then])
    graph = rh.graph(lambda w: next(rest)(w), w=np.zeros(2))
    with pytest.raises(ValueError, match=message):
        run(graph, 2, fetch)
