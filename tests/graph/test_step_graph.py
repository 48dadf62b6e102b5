"""``rh.graph``: a step of NumPy, or of any callable, as a graph with a name for everything."""

import dataclasses
import functools
import random
from typing import NamedTuple

import numpy as np
import pytest

import runhooks as rh

X = np.arange(6.0).reshape(3, 2)


def run(graph, steps, fetches, feeds=None, hooks=()):
    """Make steps; return what each gave for ``fetches``."""
    values = []
    with (
        graph.as_default(),
        rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=steps), *hooks]) as session,
    ):
        while not session.should_stop():
            values.append(session.run(["train_op", fetches], feeds)[1])
    return values


def count(state, x):
    return {"n": state["n"] + 1}, {"sum": x.sum(), "moments": {"mean": x.mean()}}


@pytest.mark.parametrize("state", [{"n": 0}, lambda: {"n": 0}])
def test_outputs_states_and_arguments_have_names(state):
    graph = rh.graph(count, state=state, data=[X] * 3)
    names = ["sum", "moments/mean", "moments", "state/n", "train_op/sum", "global_step"]
    values = run(graph, 3, names)
    assert values[2] == [15, 2.5, {"mean": 2.5}, 2, 15, 2]
    assert run(graph, 1, "x")[0].tolist() == X.tolist()
    assert graph["sum"] is graph["sum:0"]
    assert graph["global_step"] is rh.train.get_global_step(graph)


def test_only_the_operation_itself_makes_a_step():
    graph = rh.graph(count, state={"n": 0})
    with rh.Session(graph) as session:
        assert session.run(["sum", "state/n"], {"x": X}) == [15, 0]
        assert session.run("state/n") == 0
        session.run("train_op", {"x": X})
        assert session.run(["state/n", "global_step"]) == [1, 1]


@pytest.mark.parametrize("name", ["sums", "moments/men", "state/m"])
def test_misspelt_name_is_told_in_the_first_run(name):
    """Also where the hook that asks for it is due much later; nothing has changed then."""
    graph = rh.graph(count, state={"n": 0}, data=[X] * 3)
    hook = rh.NanTensorHook(name, trigger=rh.Trigger(every_steps=100))
    with pytest.raises(ValueError, match=rf"nothing is named '{name}'.*gives.*mean '"):
        run(graph, 3, "sum", hooks=[hook])
    known = rh.graph(count, state={"n": 0}, data=[X] * 3)
    run(known, 1, "sum")
    with pytest.raises(ValueError, match=rf"nothing is named '{name}'.*mean '"):
        known[name]


def test_summaries_of_names_whose_leaves_only_a_run_knows():
    graph = rh.graph(count, state={"n": 0}, data=[X], epochs=3)
    with graph.as_default():
        merged = rh.summary.merge(
            [
                rh.summary.scalar("sum"),
                rh.summary.scalars("moments"),
                rh.summary.histogram("state"),
                rh.summary.histogram("x"),
            ]
        )
    (summary,) = run(graph, 1, merged)
    assert [value.tag for value in summary] == ["sum", "moments/mean", "state/n", "x"]
    assert run(graph, 1, "sum") == [15]


class Pair(NamedTuple):
    a: np.ndarray
    b: np.ndarray


@dataclasses.dataclass
class Record:
    a: np.ndarray
    b: np.ndarray


class Batch(NamedTuple):
    y: float
    x: np.ndarray


class Half(NamedTuple):
    y: float
    image: float


BatchClass = dataclasses.make_dataclass("BatchClass", ["y", "x"])


@pytest.mark.parametrize("kind", [Pair, Record])
def test_states_of_named_fields(kind):
    def step(state):
        return kind(state.a + 1, state.b)

    graph = rh.graph(step, state=kind(np.zeros(2), np.ones(())))
    values = run(graph, 2, ["state", "state/a"])
    assert type(values[1][0]) is kind
    assert values[1][1].tolist() == values[1][0].a.tolist() == [1, 1]


def test_state_that_the_step_changes_in_place_is_fetched_as_it_was():
    def step(record):
        record.a = record.a + 1
        return record

    assert [it.a for it in run(rh.graph(step, record=Record(0, 1)), 3, "record")] == [0, 1, 2]


def test_step_key_and_defaults_are_filled_in():
    def train(w, x, step, rng, scale=2.0, *, more, rate=0.1):
        return w, {"got": (x, int(step), rng.normal(), scale, more, rate)}

    graph = rh.graph(train, w=0.0, data=[(1.0, 5.0)] * 2)
    values = run(graph, 2, ["got", "x", "step", "more"])
    assert [value[0][:2] for value in values] == [(1, 0), (1, 1)]
    assert values[0][0][2] != values[1][0][2]
    assert values[0][0][3:] == (2, 5, 0.1)
    assert values[1][1:] == [1, 1, 5]


@pytest.mark.parametrize(("parameter", "expected"), [("rng", "Generator"), ("step", "int64")])
def test_default_of_none_leaves_key_and_step_open(parameter, expected):
    train = eval(f"lambda w, {parameter}=None: (w, {{'got': type({parameter}).__name__}})")
    assert run(rh.graph(train, w=0.0), 1, "got") == [expected]


def test_state_changed_in_place_is_told_with_the_cure():
    def train(state):
        state["v"] += 1.0
        return state

    with pytest.raises(ValueError, match="read-only") as caught:
        run(rh.graph(train, state={"v": np.zeros(3)}), 1, "state")
    assert any("v = v.copy()" in note for note in caught.value.__notes__)


def test_mask_is_not_lost_in_a_new_state():
    graph = rh.graph(lambda w: np.ma.masked_array(w + 1, [True, False]), w=np.zeros(2))
    with pytest.raises(TypeError, match=r"'w' cannot hold a masked array.*filled"):
        run(graph, 1, "w")


@pytest.mark.parametrize("text", ["loss", "loss/mean", "w"])
def test_name_where_a_function_needs_the_tensor_is_told(text):
    graph = rh.graph(lambda w: (w, {"loss": {"mean": w}}), w=0.0)
    with graph.as_default(), pytest.raises(TypeError, match=rf"give graph\['{text}'\]"):
        length = rh.call(len, text, name="length")
        run(graph, 1, length)
    other = rh.graph(lambda w: (w, {"loss": w}), w=0.0)
    with other.as_default():
        assert run(other, 1, rh.call(len, "losses")) == [6]


def test_suggestion_is_never_the_name_itself():
    graph = rh.graph(lambda w: (w, {"loss": w}), w=0.0)
    with graph.as_default(), pytest.raises(ValueError, match=r"mean 'loss'\?"):
        run(graph, 1, rh.summary.scalar("lss"))


def test_function_that_returns_a_tensor_fills_a_parameter():
    def train(w, noise, at):
        return w, {"drawn": noise.normal(), "step": int(at)}

    def graph(seed):
        key = functools.partial(rh.random_key, seed)
        return rh.graph(train, w=0.0, noise=key, at=rh.train.get_or_create_global_step)

    (first, again, other) = (run(graph(seed), 2, ["drawn", "step"]) for seed in (1, 1, 2))
    assert first == again != other
    assert [step for _, step in first] == [0, 1]


@pytest.mark.parametrize("make", [np.random.default_rng, random.Random])
def test_generator_of_ones_own_goes_on_where_the_checkpoint_was_saved(make, tmp_path):
    def train(x, noise):
        return x + noise.random()

    def trained(folder, *last_steps):
        for last_step in last_steps:
            with rh.graph(train, x=0.0, noise=make(0)).as_default():
                hooks = [rh.StopAtStepHook(last_step=last_step)]
                with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
                    while not session.should_stop():
                        session.run("train_op")
        return rh.load(folder)["x"]

    assert trained(tmp_path / "a", 2, 5) == trained(tmp_path / "b", 5)


@pytest.mark.parametrize(
    "data",
    [
        [(X, 1.0)] * 3,
        [{"y": 1.0, "x": X, "id": "a"}] * 3,
        [Batch(1.0, X)] * 3,
        [BatchClass(1.0, X)] * 3,
        [Pair(X, 1.0)] * 3,
        [(X, 1.0), Batch(1.0, X), {"y": 1.0, "x": X}],
        iter([[X, 1.0]] * 3),
        lambda step: [(X, 1.0)] * (3 - step),
    ],
)
def test_elements_of_data_fill_the_parameters(data):
    graph = rh.graph(lambda w, x, y: (w, {"sum": x.sum() + y}), w=0.0, data=data)
    assert run(graph, 9, ["sum", "y"]) == [[16, 1]] * 3


@pytest.mark.parametrize("batch", [X, (X, X), {"image": X}, Pair(X, X), Batch(1.0, X)])
def test_single_parameter_gets_the_element_itself(batch):
    seen = []
    graph = rh.graph(lambda w, batch: (w, seen.append(batch)), w=0.0, data=[batch])
    run(graph, 2, "w")
    assert seen == [batch] or seen[0] is batch


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ((1.0, 2.0, 3.0), r"a tuple of 2, for the parameters \['x', 'y'\].* got a tuple of 3"),
        (1.0, "got a float"),
        ((1.0,), r"got a tuple of 1; a state is given by its name, such as x=\.\.\."),
        ({"x": 1.0, "yy": 2.0}, "must have 'y', .*'yy'.*mean 'yy'"),
        (Half(1.0, 2.0), "must have 'x', a parameter of the step; it has .'y', 'image'."),
        (Record(1.0, 2.0), "must have 'x', a parameter of the step; it has .'a', 'b'."),
    ],
)
def test_element_that_does_not_fit_is_told(element, message):
    graph = rh.graph(lambda w, x, y: w, w=0.0, data=[element])
    with pytest.raises(ValueError, match=message):
        run(graph, 1, "w")


def test_random_key_that_the_data_or_the_result_lacks_is_told_how_to_give():
    def step(w, x, y, dropout_rng):
        return w

    with pytest.raises(ValueError, match="tuple of 2; .* dropout_rng=rh.random_key"):
        run(rh.graph(step, w=0.0, data=[(1.0, 2.0)]), 1, "w")
    graph = rh.graph(step, w=np.zeros(1), dropout_rng=np.zeros(2), data=[(1.0, 2.0)])
    with pytest.raises(ValueError, match="the new 'dropout_rng'.* dropout_rng=rh.random"):
        run(graph, 1, "w")


def test_session_outside_of_the_graph_is_told_to_enter_it():
    rh.graph(count, state={"n": 0})
    with (
        pytest.raises(RuntimeError, match=r"StopAtStepHook: the default graph is empty; enter"),
        rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=1)]),
    ):
        pass
    with pytest.raises(ValueError, match=r"'loss', as the graph is empty: enter yours"):
        rh.summary.scalar("loss")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rh.graph(count), r"name what count\(state, x\) takes .*, such as state=\.\.\."),
        (lambda: rh.graph(count, stat=0), r"'stat' is not a parameter of count.*mean 'state'"),
        (lambda: rh.graph(lambda *args: args, args=0), "'args' is not a parameter"),
        (lambda: rh.graph(5, state=0), "train_step must be a callable, got 5"),
        (lambda: rh.graph(count, "sum", state=0), r"outputs must be a list .* got 'sum'"),
        (lambda: rh.graph(count, ["a", "a"], state=0), "outputs must be different names"),
        (lambda: rh.graph(count, state=lambda x: x), "^state must be a pytree .* got <function"),
        (lambda: rh.graph(count, state={"n": "a"}), "'state' at 'n' must hold arrays"),
        (
            lambda: rh.graph(count, state=np.array(["2020"], "M8[D]")),
            r"got an array of dtype datetime64\[D\]",
        ),
        (lambda: rh.graph(count, state={"g": np.random.default_rng()}), "rng=generator"),
        (lambda: rh.graph(count, state=np.ma.masked_array([1, 2])), "cannot hold a masked"),
        (lambda: rh.graph(count, state=rh.random_key), "name what count"),
        (lambda: rh.graph(count, state=0, data=5), "data must be an iterable or a function"),
        (
            lambda: rh.graph(count, state=0, data=lambda *, x: [x]),
            "data must be an iterable, a function",
        ),
        (lambda: rh.graph(count, state=0, x=0, data=[X]), "data must be left out"),
        (lambda: rh.graph(lambda w, *x: w, w=0, data=[X]), "needs a name and .* \\*batch and"),
        (lambda: rh.graph(count, state=0, data=iter([X]), epochs=2), "epochs must be left out"),
        (lambda: rh.graph(count, name="train op", state=0), "name must"),
    ],
)
def test_bad_arguments_are_told_at_once(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_graph_is_one_to_which_anything_can_be_added():
    graph = rh.graph(count, state={"n": 0}, data=[X] * 3)
    with graph.as_default():
        total = rh.Variable(0.0, name="total")
        added = total.assign(total + graph["sum"])
        both = rh.group(graph.get_operation_by_name("train_op"), added, name="both")
        distance = rh.call(np.hypot, graph["sum"], graph["state/n"], name="distance")
        with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=2)]) as session:
            while not session.should_stop():
                values = session.run({"both": both, "name": "distance", "tensor": distance})
    assert values == {"both": None, "name": np.hypot(15, 1), "tensor": np.hypot(15, 1)}
    assert graph["total"] is total


def test_values_of_added_operations_have_parts_with_names_too():
    graph = rh.graph(count, state={"n": 0}, data=[X] * 3)
    with graph.as_default():
        rh.call(lambda x: {"low": x.min(), "high": x.max()}, graph["x"], name="bounds")
    assert run(graph, 1, ["bounds/low", "bounds/high"]) == [[0, 5]]
    with pytest.raises(ValueError, match="nothing is named 'bounds/hi'.*mean 'bounds/high'"):
        run(graph, 1, "bounds/hi")


def test_call_passes_keyword_arguments_on():
    with rh.Graph().as_default(), rh.Session() as session:
        x = rh.placeholder("x")
        power = rh.call(lambda x, *, by, plus=0: x ** by["e"] + plus, x, by={"e": x}, plus=1)
        assert session.run(power, {x: 3}) == 28
        with pytest.raises(TypeError, match="'to'"):
            session.run(rh.call(lambda x, *, by: x, x, to=1), {x: 3})


def test_outputs_may_come_and_go_where_nobody_asks_for_them():
    def step(a):
        return {"a": a + 1, **({"extra": 1.0} if a % 2 else {})}

    graph = rh.graph(step, a=0)
    assert run(graph, 5, "a") == [0, 1, 2, 3, 4]
