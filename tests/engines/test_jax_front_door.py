"""``rh.jax.graph``: the user's own step, in the ways in which users of JAX write it."""

import functools
import hashlib
import runpy
import signal
from pathlib import Path

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import runhooks as rh
from runhooks import events

PROGRAM = Path(__file__).with_name("jax_programs.py")
programs = runpy.run_path(str(PROGRAM))
GRAPHS, batches, params, sgd = (programs[name] for name in ("GRAPHS", "batches", "params", "sgd"))
X = np.ones((4, 2), np.float32)


def run(graph, steps, fetches="loss", feeds=None, hooks=(), directory=None):
    """Make steps until the global step is ``steps``; return what each gave for ``fetches``."""
    values = []
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory, hooks=[rh.StopAtStepHook(last_step=steps), *hooks]
        ) as session,
    ):
        while not session.should_stop():
            values.append(session.run(["train_op", fetches], feeds)[1])
    return values


def arrays_hash(directory):
    arrays = rh.checkpoint.read_checkpoint(Path(rh.latest_checkpoint(directory))).arrays
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


@pytest.mark.slow
def test_killed_run_ends_where_an_undisturbed_one_ends(jax_launcher, tmp_path):
    log = tmp_path / "log"
    program = jax_launcher.start(log, PROGRAM, "nnx", tmp_path / "nnx", "8", "5")
    assert jax_launcher.wait(program) == -signal.SIGKILL, log.read_text()
    ends_like_an_undisturbed_run("nnx", tmp_path)


@pytest.mark.parametrize(
    "name", ["plain", "linen", pytest.param("equinox", marks=pytest.mark.slow)]
)
def test_stopped_run_ends_where_an_undisturbed_one_ends(name, tmp_path):
    run(GRAPHS[name](), 5, directory=tmp_path / name)
    ends_like_an_undisturbed_run(name, tmp_path)


def ends_like_an_undisturbed_run(name, folder):
    for directory in (folder / name, folder / "undisturbed"):
        run(GRAPHS[name](), 8, directory=directory)
    assert arrays_hash(folder / name) == arrays_hash(folder / "undisturbed")


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("plain", ["params/w", "grads/w"]),
        ("linen", ["state/params/kernel", "grads/kernel", "state/opt_state/0/mu/kernel"]),
        pytest.param(
            "equinox",
            ["model/linear/weight", "grads/linear/weight", "opt_state/0/mu/linear/bias"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "nnx",
            ["model/linear/kernel", "grads/linear/kernel", "optimizer/step"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_everything_has_a_name(name, paths, tmp_path):
    graph = GRAPHS[name]()
    values = run(graph, 2, paths, directory=tmp_path)
    assert all(isinstance(value, jax.Array) for value in values[0])
    for path in paths:
        with pytest.raises(ValueError, match=f"nothing is named '{path}_'.*'{path}'"):
            graph[f"{path}_"]
    saved = rh.load(tmp_path)
    assert paths[0].partition("/")[0] in saved


@pytest.mark.parametrize(("name", "kind"), [("equinox", eqx.Module), ("nnx", nnx.Module)])
def test_model_is_the_users_own_where_it_is_fetched_and_called(name, kind):
    graph = GRAPHS[name]()
    kinds = []
    with graph.as_default():
        called = rh.call(lambda model: kinds.append(type(model)), graph["model"])
    with rh.Session(graph) as session:
        assert isinstance(session.run("model"), kind)
        session.run(called)
    assert issubclass(*kinds, kind)


@pytest.mark.slow
def test_parts_of_objects_of_nnx_have_its_variables():
    linear, grads, kernel = run(
        GRAPHS["nnx"](), 2, ["model/linear", "grads", "grads/linear/kernel"]
    )[1]
    assert linear(X).shape == (len(X), linear.out_features)
    assert isinstance(linear.kernel, nnx.Param)
    assert isinstance(grads["linear"]["kernel"], nnx.Param)
    assert isinstance(kernel, jax.Array)


@pytest.mark.slow
def test_evaluation_of_a_model_in_another_mode_leaves_the_training_alone(tmp_path):
    def evaluate(model, x, y):
        model.eval()
        return jnp.mean((model(x) - y) ** 2)

    losses, evaluated = {}, {}
    for steps in (2, 100):
        graph = GRAPHS["nnx"]()
        with graph.as_default():
            error = rh.call(evaluate, graph["model"], *next(batches(100)))
        hook = rh.EvaluationHook({"error": error}, every_n_steps=steps, output_dir=tmp_path)
        losses[steps] = run(graph, 6, hooks=[hook])
        evaluated[steps] = list(hook.metrics_by_step())
    assert losses[2] == losses[100]
    assert evaluated == {2: [2, 4, 6], 100: []}


def test_hooks_and_summaries_take_names(tmp_path, caplog):
    graph = GRAPHS["linen"]()
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.scalar("train/loss", "loss")
        rh.summary.histogram("grads")
        rh.summary.scalars("metrics", {"a": graph["loss"], "b": graph["state/step"]})
    hooks = [
        rh.NanTensorHook("grads"),
        rh.LoggingTensorHook(["loss", "grads/kernel"], every_n_iter=1),
        rh.ProgressHook(2, "loss"),
    ]
    with caplog.at_level("INFO"):
        run(graph, 2, hooks=hooks, directory=tmp_path)
    assert "grads/kernel = " in caplog.text
    found = events.read(tmp_path)["."]
    assert {"loss", "train/loss", "metrics/a", "metrics/b"} <= set(found.scalars)
    assert {"grads/bias", "grads/kernel"} <= set(found.histograms)


def test_nan_in_a_part_of_a_module_is_found():
    def step(model, x):
        grads = eqx.tree_at(lambda it: it.bias, model, model.bias * np.nan)
        return model, {"grads": grads}

    model = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    graph = rh.jax.graph(step, model=model, data=[X])
    with pytest.raises(rh.train.NanLossDuringTrainingError, match="NaN in 'bias'"):
        run(graph, 1, "model", hooks=[rh.NanTensorHook("grads")])


def test_tensors_have_the_structure_of_their_values():
    def step(w, x):
        return w, ({"loss": x.sum(), "grads": {"w": w}}, (x.sum(), x.mean()))

    graph = rh.jax.graph(step, ["metrics", "pair"], w=jnp.ones(2), data=[X] * 9)
    assert list(graph["metrics"]) == ["grads", "loss"]
    assert len(graph["metrics"]) == 2
    assert "loss" in graph["metrics"]
    total, mean = graph["pair"]
    with graph.as_default():
        doubled, halved = rh.call(lambda total: (total * 2, total / 2), total)
        parts = [graph["metrics"][name] for name in graph["metrics"]]
    assert run(graph, 1, [mean, doubled, halved, parts[1]]) == [[1, 16, 4, 8]]
    for tensor in (total, graph["w"], rh.jax.graph(step, ["a", "b"], w=jnp.ones(2))["a"]):
        with pytest.raises(TypeError, match="cannot be iterated before a run"):
            list(tensor)
    with pytest.raises(ValueError, match=r"'pair/0:0'|'getitem:0'|is not an array.*rh\.call"):
        jnp.sin(total)


def test_placeholders_stand_for_what_is_no_state():
    feeds = dict(zip("xy", next(batches(0)), strict=True))
    graph = rh.jax.graph(sgd, params=params)
    assert run(graph, 2, "x", feeds)[0].shape == (8, 2)
    with pytest.raises(ValueError, match="placeholder '[xy]:0'.*not fed"):
        run(graph, 2)
    late = rh.LoggingTensorHook("los", every_n_iter=1000)
    with pytest.raises(ValueError, match="nothing is named 'los'.*mean 'loss'"):
        run(rh.jax.graph(sgd, params=params), 2, "x", feeds, hooks=[late])


@functools.partial(jax.jit, donate_argnums=0, static_argnames="times")
def donating(params, x, y, times=2):
    for _ in range(times):
        params, outputs = sgd(params, x, y)
    return params, outputs


def scanning(params, x, y):
    return jax.lax.scan(lambda params, _: (sgd(params, x, y)[0], 0.0), params, length=2)


@pytest.mark.parametrize("step", [donating, scanning])
def test_step_may_be_jitted_donate_and_scan(step):
    twice = run(rh.jax.graph(step, params=params, data=[next(batches(0))] * 3), 3, "params/w")
    once = run(rh.jax.graph(sgd, params=params, data=[next(batches(0))] * 6), 6, "params/w")
    np.testing.assert_allclose(twice, once[::2], rtol=1e-6)


def test_initial_values_that_need_the_numbers_themselves():
    def create():
        w = jnp.ones(2)
        return {"w": w, "scale": float(w.sum()), "count": 0}

    def step(state, x):
        return {**state, "count": state["count"] + 1}, {"scale": state["scale"]}

    graph = rh.jax.graph(step, state=create, data=[X] * 3)
    assert run(graph, 3, ["scale", "state/count"])[-1] == [2.0, 2]


class Twice(nnx.Module):
    """Two layers; ``shared`` says what the second has of the first, or what both are given."""

    def __init__(self, shared):
        rngs = nnx.Rngs(0, noise=1)
        self.first = nnx.Linear(2, 2, rngs=rngs)
        self.second = self.first if shared == "module" else nnx.Linear(2, 2, rngs=rngs)
        if shared == "weights":
            self.second.kernel = self.first.kernel
        if shared == "rngs":
            self.first.rngs = self.second.rngs = rngs

    def __call__(self, x):
        for layer in (self.first, self.second):
            x = layer(x)
            if hasattr(layer, "rngs"):
                x += jax.random.normal(layer.rngs.noise(), x.shape)
        return x


@pytest.mark.parametrize(
    "shared", ["weights", *(pytest.param(it, marks=pytest.mark.slow) for it in ("module", "rngs"))]
)
def test_what_a_module_of_nnx_shares_stays_shared(shared, tmp_path):
    @nnx.jit
    def train_step(model, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - 1) ** 2))(model)
        optimizer.update(model, grads)
        return {"loss": loss}

    def create():
        model = Twice(shared)
        return model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)

    batches = [np.full((4, 2), it, np.float32) for it in range(4)]
    model, optimizer = create()
    plain = [float(train_step(model, optimizer, x)["loss"]) for x in batches]
    losses = []
    for last in (2, 4):
        model, optimizer = create()
        graph = rh.jax.graph(train_step, model=model, optimizer=optimizer, data=batches)
        arguments = {"checkpoint_dir": tmp_path, "hooks": [rh.StopAtStepHook(last_step=last)]}
        with graph.as_default(), rh.MonitoredTrainingSession(**arguments) as session:
            while not session.should_stop():
                losses.append(float(session.run({"op": "train_op", "loss": "loss"})["loss"]))
            trained = session.run("model", hooks=False)
    assert losses == plain
    assert (trained.first.kernel is trained.second.kernel) == (shared != "rngs")


def test_state_that_nnx_makes_metrics_and_a_module_that_is_returned():
    def step(model, metrics, x):
        metrics.update(values=model(x))
        model.bias[...] += 1
        return model, {"mean": metrics.compute()}

    graph = rh.jax.graph(
        step,
        model=lambda: nnx.Linear(2, 1, rngs=nnx.Rngs(0)),
        metrics=nnx.metrics.Average(),
        data=[X] * 3,
    )
    assert [bias.tolist() for bias in run(graph, 3, "model/bias")] == [[0], [1], [2]]


class Weights(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.zeros(2))


NNX_RESULTS = {
    "nothing": (lambda a, b, loss: None, []),
    "an output": (lambda a, b, loss: loss, ["loss"]),
    "a dict": (lambda a, b, loss: {"loss": loss}, []),
    "in order": (lambda a, b, loss: (a, b, loss), ["loss"]),
    "turned round": (lambda a, b, loss: (b, a), []),
    "turned round behind an output": (lambda a, b, loss: (loss, b, a), ["loss"]),
    "one of them": (lambda a, b, loss: (loss, b), []),
    "in a tuple": (lambda a, b, loss: ((b, a), {"loss": loss}), []),
    "by name": (lambda a, b, loss: {"teacher": b, "loss": loss, "student": a}, []),
    "all named": (lambda a, b, loss: (b, loss, a), ["teacher", "loss", "student"]),
}


@pytest.mark.parametrize("form", NNX_RESULTS)
def test_objects_changed_in_place_are_themselves_wherever_they_are_returned(form):
    result, outputs = NNX_RESULTS[form]

    def step(student, teacher):
        student.w[...] += 1
        teacher.w[...] = teacher.w[...] * 0.5 + student.w[...]
        return result(student, teacher, student.w[...].sum())

    graph = rh.jax.graph(step, outputs, student=Weights(), teacher=Weights())
    with rh.Session(graph) as session:
        for _ in range(2):
            session.run("train_op")
        student, teacher = session.run(["student/w", "teacher/w"])
        assert student.tolist() == [2, 2]
        assert teacher.tolist() == [2.5, 2.5]
        if form not in ("nothing", "turned round", "one of them"):
            assert session.run("loss") == 6


def test_other_objects_in_the_place_of_those_given_need_names():
    def step(student, teacher):
        new = nnx.clone(student)
        new.w[...] += 1
        return 5.0, teacher, new

    states = {"student": Weights(), "teacher": Weights()}
    for outputs in ([], ["loss"]):
        with pytest.raises(ValueError, match=r"outputs=\['loss', 'teacher', 'student'\]"):
            rh.jax.graph(step, outputs, **states)
    named = rh.jax.graph(step, ["loss", "teacher", "student"], **states)
    assert [it.tolist() for it in run(named, 2, "student/w")] == [[0, 0], [1, 1]]


def test_mode_that_the_step_sets_anew_is_told():
    def step(model, x):
        model.train()

    model = programs["NnxNet"](nnx.Rngs(0))
    run(rh.jax.graph(step, model=model, data=[X] * 2), 2, "model/norm/mean")
    model.eval()
    with pytest.raises(ValueError, match=r"variable 'model' has changed .*train\(\) and eval\(\)"):
        run(rh.jax.graph(step, model=model, data=[X] * 2), 2, "model/norm/mean")


def test_objects_that_share_a_variable_are_refused():
    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.ModelAndOptimizer(model, optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"'model' and 'optimizer' share .* 'model/bias'"):
        rh.jax.graph(lambda model, optimizer: None, model=model, optimizer=optimizer)


class Counting(eqx.Module):
    w: jax.Array
    count: int


@pytest.mark.parametrize(
    ("step", "states", "message"),
    [
        (
            lambda state, x: {"loss": x},
            {"state": params},
            r"'state'.* different structure.*return state, {",
        ),
        (
            lambda state, x: ({"w": x}, 0),
            {"state": params},
            r"'state'.* ret.*w': float32\[4, 2\]}.*: ret",
        ),
        (lambda w, x: (w[:1], 0), {"w": X}, r"'w' keeps its shape and dtype, float32\[4, 2\]"),
        (lambda w, x: w.astype("bfloat16"), {"w": X}, r"'w' keeps its precision, float32\[4, 2\]"),
        (lambda w, x: (x.sum(), w), {"w": X}, r"'w' keeps.*outputs=\['loss', 'w'\]"),
        (lambda s, x: (0, (x, s)), {"s": params}, r"outputs=\['output_0', \('output_1', 's'\)\]"),
        (lambda w, x: w @ x, {"w": X}, "contracting dimensions"),
        (
            lambda s, x: (Counting(s.w, s.count + 1), 0),
            {"s": Counting(X, 0)},
            "'s' at 'count' is no array.* 0: the new value has 1",
        ),
        (lambda w, x: w, {"w": linen.Dense(1)}, "^w must be a pytree of arrays, or a function"),
    ],
)
def test_mistakes_are_told_before_anything_runs(step, states, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rh.jax.graph(step, data=[X] * 2, **states)


class Loader:
    """Knows how far it has come, as torchdata's does."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        while self.next < 4:
            self.next += 1
            yield X * self.next

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [X * i for i in range(1, 5)],
        lambda: (X * i for i in range(1, 5)),
        lambda: lambda step: (X * i for i in range(1 + step, 5)),
        Loader,
    ],
    ids=["list", "generator", "function", "loader"],
)
def test_looking_at_the_data_takes_nothing_of_it(make, tmp_path):
    def graph(data):
        return rh.jax.graph(lambda w, x: (w + 1, {"mean": x.mean()}), w=jnp.zeros(2), data=data)

    assert run(graph(make()), 99, "mean") == [1, 2, 3, 4]
    if make is Loader:
        run(graph(make()), 2, "mean", directory=tmp_path)
        assert run(graph(make()), 99, "mean", directory=tmp_path) == [3, 4]


def test_loader_of_torch_gives_arrays():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def step(w, x, y):
        return w + y @ x, {"x": x, "y": y}

    torch.manual_seed(0)
    data = TensorDataset(torch.rand(6, 2), torch.arange(6))
    x, y = next(iter(DataLoader(data, 4)))
    graph = rh.jax.graph(step, w=jnp.zeros(2), data=DataLoader(data, 4))
    found, last = run(graph, 99, {"x": "x", "y": "y"})
    np.testing.assert_array_equal(found["x"], x.numpy())
    np.testing.assert_array_equal(found["y"], y.numpy())
    assert last["x"].shape == (2, 2)


def test_tensors_inside_an_element_become_arrays_in_a_step_and_in_an_evaluation():
    import torch

    class Pairs:
        def __iter__(self):
            half = torch.tensor([1, 2], dtype=torch.bfloat16)
            yield {"x": {"half": half, "whole": np.ones(2)}, "y": 3}

    seen = []
    graph = rh.jax.graph(
        lambda w, batch: (w + batch["x"]["half"], {}), w=jnp.zeros(2), data=Pairs()
    )
    with graph.as_default():
        test = rh.EvaluationHook(
            lambda w, x, y: {"sum": (w * x["half"]).sum() + y}, Pairs(), every_n_steps=1
        )
        rh.train.train("train_op", hooks=[test, rh.CallHook(seen.append, "batch", every_n_steps=1)])
    assert test.metrics_by_step() == {1: {"sum": 8.0}}
    assert seen[0]["x"]["half"].dtype == jnp.bfloat16


def test_function_that_makes_a_state_draws_its_random_numbers_once():
    hidden = np.random.default_rng(0)

    def params():
        return {"w": jnp.asarray(hidden.normal(size=2) + np.random.normal(size=2))}

    np.random.seed(1)
    own, hidden_then, shared_then = params(), hidden.normal(), np.random.normal()
    hidden = np.random.default_rng(0)
    np.random.seed(1)
    graph = rh.jax.graph(lambda params: ({"w": params["w"] * 1}, {}), params=params)
    np.testing.assert_array_equal(run(graph, 1, "params/w"), [own["w"]])
    assert (hidden.normal(), np.random.normal()) == (hidden_then, shared_then)
    assert not np.array_equal(run(graph, 1, "params/w"), [own["w"]])  # called at each start


def test_step_that_draws_on_the_host_while_it_is_traced_draws_once():
    def step(w, x):
        return w, {"noisy": x + np.random.normal()}

    np.random.seed(1)
    own, then = jax.jit(step)(0.0, 1.0)[1]["noisy"], np.random.normal()
    np.random.seed(1)
    assert run(rh.jax.graph(step, w=0.0, data=[1.0] * 3), 2, "noisy") == [own, own]
    assert np.random.normal() == then


def test_text_in_the_data_is_refused():
    with pytest.raises(TypeError, match="data has the text 'cat' for 'batch'"):
        rh.jax.graph(lambda w, batch: w, w=X, data=[{"x": X, "label": "cat"}])
