import copy
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from safetensors.numpy import load_file

import runhooks as rh
from runhooks.testing import RecordingHook

STEPS = 7


def of_torch(values, decay):
    """The averages after each of ``values``, by PyTorch."""
    parameter = torch.nn.Parameter(torch.tensor(values[0]))
    module = torch.nn.Module()
    module.register_parameter("w", parameter)
    multi_avg_fn = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
    averaged = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=multi_avg_fn)
    found = []
    for value in values:
        with torch.no_grad():
            parameter.fill_(value)
        averaged.update_parameters(module)
        found.append(averaged.module.w.item())
    return found


def of_optax(values, decay):
    """The averages after each of ``values``, by optax, which removes the bias."""
    ema = optax.ema(decay, debias=True)
    state = ema.init(0.0)
    found = []
    for value in values:
        average, state = ema.update(jnp.asarray(value), state)
        found.append(float(average))
    return found


def build(dtype=np.float32):
    """A state in a variable: a step adds 1 to what is trained, and counts."""

    def init():
        return {"params": {"w": np.zeros(2, dtype), "n": np.int32(0)}, "rest": np.ones(3)}

    def train_step(state):
        params = {"w": state["params"]["w"] + 1, "n": state["params"]["n"] + 1}
        return {"params": params, "rest": state["rest"]}

    state = rh.Variable(init, name="state")
    step = rh.train.get_or_create_global_step()
    new = rh.call(train_step, state)
    return state, rh.group(state.assign(new), step.assign_add(1), name="train_op")


def raw_of(sess):
    return sess.run_step_fn(lambda step_context: step_context.session)


def averages(hook, steps=STEPS, *, train_op="train_op", folder=None, hooks=()):
    """The average of w after each step."""
    found = []
    with rh.MonitoredTrainingSession(
        checkpoint_dir=folder, hooks=[hook, *hooks], save_checkpoint_steps=1000
    ) as sess:
        while sess.global_step < steps:
            sess.run(train_op)
            found.append(float(raw_of(sess).read("ema/state/params/w")["ema/state/params/w"][0]))
    return found


# --- The averages


@pytest.mark.every_engine
@pytest.mark.parametrize(("debias", "oracle"), [(False, of_torch), (True, of_optax)])
def test_as_other_libraries_have_them(graph, debias, oracle):
    build()
    ema = rh.EmaHook("state/params", decay=0.75, debias=debias)
    expected = oracle([float(step) for step in range(1, STEPS + 1)], 0.75)
    assert averages(ema) == pytest.approx(expected, rel=1e-6)
    assert ema.num_updates == STEPS


@pytest.mark.every_engine
def test_every_few_steps(graph):
    build()
    ema = rh.EmaHook("state/params", decay=0.5, every_n_steps=3, debias=False)
    assert averages(ema) == [0, 0, 3, 3, 3, 4.5, 4.5]
    assert ema.num_updates == 2


@pytest.mark.every_engine
def test_what_is_kept(graph, tmp_path):
    build()
    averages(rh.EmaHook("state/params", decay=0.5), 2, folder=tmp_path)
    arrays = load_file(tmp_path / "model.ckpt-2" / "checkpoint.safetensors")
    kept = {name: it for name, it in arrays.items() if name.startswith("ema/")}
    assert kept.keys() == {"ema/state/params/w", "ema/state/params/n"}
    assert kept["ema/state/params/n"].dtype == np.int32
    assert kept["ema/state/params/n"] == 2  # an integer is copied
    assert kept["ema/state/params/w"].tolist() == pytest.approx([5 / 3] * 2)


@pytest.mark.every_engine
def test_a_whole_variable_or_several_parts(graph):
    state, _ = build()
    ema = rh.EmaHook([state, "state/params/w"], decay=0.5)
    with rh.MonitoredSession(hooks=[ema]) as sess:
        sess.run("train_op")
        assert raw_of(sess).read("ema").keys() == {
            "ema/state/params/w",
            "ema/state/params/n",
            "ema/state/rest",
        }


@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_short_floats_are_averaged_in_float32(graph, engine):
    build(jnp.bfloat16)
    ema = rh.EmaHook("state/params", decay=0.999, debias=False)
    expected = of_torch([float(step) for step in range(1, STEPS + 1)], 0.999)
    w = rh.call(lambda state: state["params"]["w"].sum(), graph.get_tensor_by_name("state:0"))
    evaluation = rh.EvaluationHook({"w": w}, every_n_steps=STEPS, averages=ema)
    assert averages(ema, hooks=[evaluation]) == pytest.approx(expected, rel=1e-6)
    assert evaluation.last_metrics["w"] == pytest.approx(2 * expected[-1], rel=0.01)


@pytest.mark.every_engine
def test_a_resumed_run_ends_bit_for_bit_the_same(engine, tmp_path):
    def run(folder, *stops):
        for stop in stops:
            with rh.Graph(engine=engine).as_default():
                build()
                averages(rh.EmaHook("state/params", decay=0.9), stop, folder=folder)
        return load_file(folder / f"model.ckpt-{STEPS}" / "checkpoint.safetensors")

    whole, resumed = run(tmp_path / "a", STEPS), run(tmp_path / "b", 3, 4, STEPS)
    assert {name: it.tobytes() for name, it in whole.items()} == {
        name: it.tobytes() for name, it in resumed.items()
    }


def by_hand(kind, values, decay, debias):
    """The averages after ``values``, as the docstring of ``EmaHook`` computes them."""

    def move(average, new, w):
        if kind == "module":
            pair = torch.from_numpy(average), torch.from_numpy(new)
            return torch.lerp(*pair, w).numpy()
        if kind == "jax":
            return compiled(average, new, np.float32(w))
        return average + w * (new - average) if w < 0.5 else new - (1 - w) * (new - average)

    compiled = jax.jit(
        lambda a, new, w: jnp.where(w < 0.5, a + w * (new - a), new - (1 - w) * (new - a))
    )
    average = values[0]
    for k, new in enumerate(values[1:], 2):
        average = move(average, new, (1 - decay) / (1 - decay**k) if debias else 1 - decay)
    return np.asarray(average)


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("kind", ["python", "jax", "torch", "module"])
def test_a_loop_by_hand_gets_the_same_bits(kind, debias, tmp_path):
    values = [np.random.default_rng(i).normal(size=(3, 33)).astype("f4") for i in range(30)]

    def train_step(w, x):
        return {"w": x + 0}

    def change(module, x):
        with torch.no_grad():
            module.weight.copy_(x)

    if kind == "module":
        data, module = [torch.from_numpy(it) for it in values], torch.nn.Linear(33, 3, bias=False)
        graph, name = rh.torch.graph(change, data=data, module=module), "module"
    else:
        graph = rh.graph(train_step, w=np.zeros((3, 33), "f4"), data=values, engine=kind)
        name = "w"
    with graph.as_default():
        ema = rh.EmaHook(name, decay=0.95, debias=debias)
        rh.train.train("train_op", tmp_path, [ema])
    (found,) = jax.tree.leaves(rh.load(tmp_path, f"ema/{name}"))
    assert np.array_equal(found, by_hand(kind, values, 0.95, debias))


@pytest.mark.every_engine
def test_averages_that_a_resumed_run_adds_begin_anew(engine, tmp_path, caplog):
    with rh.Graph(engine=engine).as_default():
        build()
        rh.train.train("train_op", tmp_path, max_steps=3)
    with rh.Graph(engine=engine).as_default():
        build()
        ema = rh.EmaHook("state/params", decay=0.5)
        rh.train.train("train_op", tmp_path, [ema], max_steps=5)
    assert ema.num_updates == 2
    # The parameters are 4 and 5 after the steps since then.
    assert rh.load(tmp_path, "ema/state/params/w").tolist() == pytest.approx([(4 + 2 * 5) / 3] * 2)
    assert "no states for EmaHook, which start over" in caplog.text


@pytest.mark.every_engine
def test_a_run_that_changes_no_parameter_updates_nothing(graph):
    state, train_op = build()
    ema = rh.EmaHook("state/params", decay=0.5)
    with rh.MonitoredSession(hooks=[ema]) as sess:
        for fetches in (train_op, state, [train_op, state], [state]):
            sess.run(fetches)
    assert ema.num_updates == 2


# --- Evaluation


@pytest.fixture
def metrics(graph):
    """Metrics of the parameters that a run computes with."""
    state, _ = build()
    return {"w": rh.call(lambda state: state["params"]["w"][0] + 0.0, state)}


@pytest.mark.every_engine
def test_an_evaluation_on_the_averages(metrics):
    ema = rh.EmaHook("state/params", decay=0.5)
    inner = RecordingHook(fetches=metrics["w"])
    averaged = rh.EvaluationHook(metrics, every_n_steps=2, averages=ema, hooks=[inner])
    plain = rh.EvaluationHook(metrics, every_n_steps=2)
    found = averages(ema, 4, hooks=[averaged, plain])
    assert averaged.metrics_by_step() == {
        2: {"w": pytest.approx(found[1])},
        4: {"w": pytest.approx(found[3])},
    }
    assert [float(it) for it in inner.results] == pytest.approx([found[1], found[3]])
    assert plain.metrics_by_step() == {2: {"w": 2.0}, 4: {"w": 4.0}}


@pytest.mark.every_engine
def test_the_parameters_come_back_also_if_the_evaluation_raises(metrics):
    ema = rh.EmaHook("state/params", decay=0.5)
    x = rh.placeholder("x")

    def feeds(step):
        yield {x: 1.0}
        raise ZeroDivisionError("no data")

    evaluation = rh.EvaluationHook({**metrics, "x": x}, feeds, every_n_steps=2, averages=ema)
    with rh.MonitoredSession(hooks=[ema]) as sess:
        sess.run("train_op")
        raw = raw_of(sess)
        with pytest.raises(ZeroDivisionError), ema.substituted(raw):
            assert float(raw.run(metrics["w"])) == 1
            next(iter(feeds(1)))
            raise ZeroDivisionError
        assert raw.read("state/params/w")["state/params/w"].tolist() == [1, 1]
        assert raw.read("state/params/n") == {"state/params/n": 1}
    with pytest.raises(ZeroDivisionError, match="no data"):
        averages(ema, hooks=[evaluation])


def test_an_evaluation_is_no_change(metrics, tmp_path):
    ema = rh.EmaHook("state/params", decay=0.5)
    evaluation = rh.EvaluationHook(
        metrics, trigger=rh.Trigger(every_steps=2, at_end=True), averages=ema
    )
    averages(ema, 4, folder=tmp_path, hooks=[evaluation])
    arrays = load_file(tmp_path / "model.ckpt-4" / "checkpoint.safetensors")
    assert arrays["state/params/w"].tolist() == [4, 4]


def test_an_evaluation_before_the_first_update(metrics):
    ema = rh.EmaHook("state/params", decay=0.5, every_n_steps=5)
    evaluation = rh.EvaluationHook(metrics, every_n_steps=2, averages=ema)
    averages(ema, 4, hooks=[evaluation])
    assert evaluation.metrics_by_step() == {2: {"w": 2.0}, 4: {"w": 4.0}}


# --- Modules of flax and equinox


def nnx_step(model, x):
    model.kernel[...] += x
    return {"sum": model.kernel[...].sum()}


def equinox_step(model, x):
    model = eqx.tree_at(lambda it: it.weight, model, model.weight + x)
    return model, {"sum": model.weight.sum()}


@pytest.mark.parametrize(
    ("make", "step", "name"),
    [
        (lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx_step, "kernel"),
        (lambda: eqx.nn.Linear(2, 2, key=jax.random.key(0)), equinox_step, "weight"),
    ],
    ids=["nnx", "equinox"],
)
def test_a_module_under_the_front_door(make, step, name):
    model = make()
    graph = rh.jax.graph(step, model=model, data=lambda step: itertools.repeat(np.float32(1.0)))
    seen = rh.call(lambda model: getattr(model, name)[...].sum(), graph["model"])
    ema = rh.EmaHook("model", decay=0.5, debias=False)
    averaged = rh.EvaluationHook({"sum": seen}, every_n_steps=3, averages=ema)
    plain = rh.EvaluationHook({"sum": seen}, every_n_steps=3)
    with graph.as_default(), rh.MonitoredSession(hooks=[ema, averaged, plain]) as sess:
        for _ in range(3):
            sess.run("train_op")
        assert raw_of(sess).read("ema").keys() == {f"ema/model/{name}", "ema/model/bias"}
    begun = float(getattr(model, name)[...].sum())
    assert plain.last_metrics["sum"] == pytest.approx(begun + 3 * 4, rel=1e-5)
    assert averaged.last_metrics["sum"] == pytest.approx(begun + 2.25 * 4, rel=1e-5)


# --- Modules of PyTorch


class Training:
    """A module with a batch norm, trained a little; ``averaged`` is what PyTorch makes of it."""

    def __init__(self, decay):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.averaged = torch.optim.swa_utils.AveragedModel(
            copy.deepcopy(self.model),
            multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay),
            use_buffers=True,
        )

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).pow(3).mean()
        loss.backward()
        self.optimizer.step()
        self.averaged.update_parameters(self.model)
        return {"loss": loss}

    def graph(self):
        return rh.torch.graph(self.step, ["loss"], model=self.model, optimizer=self.optimizer)

    def run(self, hooks, steps, folder=None):
        with (
            self.graph().as_default(),
            rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as sess,
        ):
            while sess.global_step < steps:
                x = torch.full((4, 2), float(sess.global_step)) + torch.arange(8.0).reshape(4, 2)
                sess.run("train_op", {"x": x})


def floats(module):
    return {k: v.numpy().copy() for k, v in module.state_dict().items() if v.is_floating_point()}


def test_a_module_as_pytorch_averages_it(tmp_path):
    training = Training(0.75)
    training.run([rh.EmaHook("model", decay=0.75, debias=False)], 5, tmp_path)
    arrays = load_file(tmp_path / "model.ckpt-5" / "checkpoint.safetensors")
    for name, expected in floats(training.averaged.module).items():
        np.testing.assert_allclose(arrays[f"ema/model/{name}"], expected, rtol=1e-6, atol=1e-7)
    assert arrays["ema/model/1.num_batches_tracked"] == 5


def test_a_module_resumes_bit_for_bit(tmp_path):
    for folder, stops in (("a", [6]), ("b", [2, 6])):
        for stop in stops:
            Training(0.9).run([rh.EmaHook("model", decay=0.9)], stop, tmp_path / folder)
    a, b = (load_file(tmp_path / it / "model.ckpt-6" / "checkpoint.safetensors") for it in "ab")
    assert {k: v.tobytes() for k, v in a.items()} == {k: v.tobytes() for k, v in b.items()}


def test_a_module_is_evaluated_on_its_averages_and_gets_its_parameters_back():
    training = Training(0.75)
    ema = rh.EmaHook("model", decay=0.75, debias=False)
    seen = []

    def evaluate():
        seen.append((floats(training.model), floats(training.averaged.module)))
        return torch.zeros(())

    graph = training.graph()
    with graph.as_default():
        metric = rh.call(evaluate)
        evaluation = rh.EvaluationHook({"zero": metric}, every_n_steps=3, averages=ema)
        with rh.MonitoredSession(hooks=[evaluation, ema]) as sess:
            for step in range(3):
                sess.run("train_op", {"x": torch.full((4, 2), float(step)) + torch.eye(4, 2)})
                last = floats(training.model)
    ((during, averaged),) = seen
    for name, expected in averaged.items():
        np.testing.assert_allclose(during[name], expected, rtol=1e-6, atol=1e-7)
    assert any((during[name] != last[name]).any() for name in last)
    # What the next step would train is what the last one has left.
    raw = {k: v.tolist() for k, v in floats(training.model).items()}
    assert raw == {k: v.tolist() for k, v in last.items()}


def test_a_part_of_a_module_and_steps_that_do_not_count():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    graph = rh.torch.Graph(model=model)
    ema = rh.EmaHook("model/1", decay=0.5)
    with graph.as_default():
        rh.torch.step(lambda: None, name="update")
        rh.torch.step(lambda: None, name="accumulate", counts=False)
        with rh.MonitoredSession(hooks=[ema]) as sess:
            for op in ("accumulate", "update", "accumulate", "update"):
                sess.run(op)
            saved = raw_of(sess).snapshot({})
    assert ema.num_updates == 2
    assert {it for it in saved.arrays if it.startswith("ema")} == {
        "ema/model/1.weight",
        "ema/model/1.bias",
    }


# --- Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decay": 1.0}, "decay must be below 1, got 1.0"),
        ({"decay": -0.5}, "decay must not be negative, got -0.5"),
        ({"every_n_steps": 0}, "every_n_steps"),
        ({"parameters": []}, "parameters must be one name or more"),
    ],
    ids=str,
)
def test_arguments(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rh.EmaHook(**{"parameters": "state", **arguments})


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("name", "near"), [("sate/params", "state"), ("state/parms", "state/params/")]
)
def test_an_unknown_name(graph, name, near):
    build()
    with pytest.raises(ValueError, match=f"named '{name}'; did you mean '{near}"):
        rh.MonitoredSession(hooks=[rh.EmaHook(name)])


def test_another_hook_of_the_same_name(graph):
    build()
    hooks = [rh.EmaHook("state/params"), rh.EmaHook("state/rest")]
    with pytest.raises(ValueError, match="name must be another one, got 'ema'"):
        rh.MonitoredSession(hooks=hooks)
