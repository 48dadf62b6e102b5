"""What hooks ask for beside a step is computed as if the run asked for it alone."""

import numpy as np
import pytest

import runhooks as rh
from runhooks.arrays.trees import mapped

pytestmark = pytest.mark.every_engine

BIG = 50  # a square of so many floats is large


class Asks(rh.SessionRunHook):
    """Asks for ``fetches`` in every ``n``-th run, and keeps what it gets."""

    def __init__(self, fetches, n=1):
        self.fetches, self.n, self.runs, self.got = fetches, n, 0, []

    def before_run(self, run_context):
        self.runs += 1
        return rh.SessionRunArgs(self.fetches) if self.runs % self.n == 0 else None

    def after_run(self, run_context, run_values):
        if run_values.results is not None:
            self.got.append(run_values.results)


def square(value):
    return np.full((BIG, BIG), value, np.float32)


@pytest.fixture
def x(graph):
    return rh.placeholder("x")


@pytest.fixture
def state(graph):
    return rh.Variable({"w": square(0), "count": np.int32(0)}, name="state")


def make_step(state, x):
    new = {"w": state["w"] + x, "count": state["count"] + np.int32(1)}
    return new, {"loss": x * np.float32(2), "grads": {"w": state["w"] * 0 + x}, "name": "step"}


@pytest.fixture
def step(state, x):
    return rh.call(make_step, state, x, num_outputs=2, name="step")


@pytest.fixture
def train_op(state, step):
    return rh.group(state.assign(step[0]), name="train_op")


def trained(hook, train_op, x, runs=4):
    with rh.MonitoredSession(hooks=[hook, Asks([], n=2)]) as sess:
        for _ in range(runs):
            sess.run(train_op, {x: np.float32(1)})
    return hook.got


REQUESTS = {
    "small result": (lambda s, step: step[1]["loss"], lambda i: 2),
    "arithmetic on it": (lambda s, step: step[1]["loss"] * 10 + 1, lambda i: 21),
    "large result": (lambda s, step: step[1]["grads"]["w"], lambda i: square(1)),
    "tree of large results": (lambda s, step: step[1]["grads"], lambda i: {"w": square(1)}),
    "part of an array": (lambda s, step: step[1]["grads"]["w"][0, 1], lambda i: 1),
    "what is not an array": (lambda s, step: step[1]["name"], lambda i: "step"),
    "old state": (lambda s, step: s["w"], lambda i: square(i)),
    "new state": (lambda s, step: step[0]["w"], lambda i: square(i + 1)),
    "whole new state": (
        lambda s, step: step[0],
        lambda i: {"w": square(i + 1), "count": np.int32(i + 1)},
    ),
    "function of the old state": (
        lambda s, step: rh.call(lambda s: s["w"].sum(), s),
        lambda i: i * BIG**2,
    ),
    "function of both states": (
        lambda s, step: rh.call(lambda a, b: (b["w"] - a["w"]).sum(), s, step[0]),
        lambda i: BIG**2,
    ),
    "function of a function of the old state": (
        lambda s, step: rh.call(
            lambda a, b: a + b["w"].sum(), rh.call(lambda s: s["w"].sum(), s), step[1]["grads"]
        ),
        lambda i: (i + 1) * BIG**2,
    ),
    "all of it": (
        lambda s, step: {"old": s, "new": [step[0]["w"], step[1]["loss"]]},
        lambda i: {"old": {"w": square(i), "count": np.int32(i)}, "new": [square(i + 1), 2]},
    ),
}


def assert_equal(actual, expected):
    np.testing.assert_equal(mapped(np.asarray, actual), mapped(np.asarray, expected))


@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("n", [1, 2])
def test_hook_gets_what_it_asks_for(what, n, state, step, train_op, x):
    build, expected = REQUESTS[what]
    got = trained(Asks(build(state, step), n), train_op, x)
    assert len(got) == 4 // n
    for i, value in enumerate(got):
        assert_equal(value, expected(i * n + n - 1))


def test_hook_assigns_variables_of_its_own_and_adds_to_what_the_caller_assigns(
    state, step, train_op, x
):
    average = rh.Variable(square(0), name="average")
    update = average.assign(rh.call(lambda a, s: (a + s["w"]) / 2, average, step[0]))
    later = state.assign(rh.call(lambda s: {**s, "w": s["w"] * 3}, step[0]))
    hook = Asks([rh.group(update, later), average[0, 0]], n=2)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(4):
            sess.run(train_op, {x: np.float32(1)})
        np.testing.assert_array_equal(sess.run(average, hooks=False), square(4.5))
        np.testing.assert_array_equal(sess.run(state, hooks=False)["w"], square(24))
    assert_equal([before for _, before in hook.got], [0, 1])


def test_two_hooks_assign_one_variable_in_the_order_of_the_graph(state, step, train_op, x):
    total = rh.Variable(np.float32(0), name="total")
    first, second = total.assign(np.float32(10)), total.assign_add(step[1]["loss"])
    hooks = [Asks(second), Asks(first)]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(train_op, {x: np.float32(1)})
        assert sess.run(total, hooks=False) == 12
    assert_equal([hook.got for hook in hooks], [[12], [10]])


class Fails:
    def __call__(self, *args):
        raise ArithmeticError("no such number")


@pytest.mark.parametrize("depends_on", ["old state", "new state"])
def test_failure_in_what_a_hook_asks_for_changes_nothing(
    depends_on, state, step, train_op, x, graph
):
    value = state if depends_on == "old state" else step[0]
    hook = Asks(rh.call(Fails(), value, name="ratio"), n=2)
    with pytest.raises(ArithmeticError) as caught, rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(train_op, {x: np.float32(1)})
        raw = sess.run_step_fn(lambda step_context: step_context.session)
        try:
            sess.run(train_op, {x: np.float32(1)})
        finally:
            np.testing.assert_array_equal(raw.run(state)["w"], square(1))
    notes = caught.value.__notes__
    assert any("ratio" in note for note in notes)
    if graph.engine.name == "jax":
        assert any("the hook Asks" in note for note in notes)
