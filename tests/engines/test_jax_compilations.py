"""The jax engine compiles a step once, and what each hook adds once, whatever their cadences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh

STEPS = 2_000
SIZE = 40  # a square of so many floats is not small
BATCH = np.float32(np.linspace(-1, 1, 4 * SIZE)).reshape(4, SIZE)


@pytest.fixture
def engine():
    return "jax"


@pytest.fixture
def compiled():
    """The names of the functions that XLA has compiled since, without those of array methods."""
    names = []

    def listen(event, duration, fun_name="", **kwargs):
        if event.endswith("backend_compile_duration") and fun_name in ("jit(step)", "jit(fetches)"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


class Model:
    """A step whose metrics are small and whose gradients are not."""

    def __init__(self):
        self.traced = 0
        self.x = rh.placeholder("x", np.float32)
        self.state = rh.Variable(
            {"w": np.eye(SIZE, dtype=np.float32), "count": np.int32(0)}, name="state"
        )
        self.new_state, self.metrics = rh.call(
            self.step, self.state, self.x, num_outputs=2, name="step"
        )
        self.global_step = rh.train.create_global_step()
        self.train_op = rh.group(
            self.state.assign(self.new_state), self.global_step.assign_add(1), name="train_op"
        )
        self.feeds = {self.x: BATCH}

    def step(self, state, x):
        self.traced += 1
        loss, grads = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(state["w"])
        new = {"w": state["w"] - 0.1 * grads, "count": state["count"] + 1}
        small = {"loss": loss, "norm": jnp.linalg.norm(grads), "rows": grads.sum(0)}
        return new, {**small, "grads": {"w": grads}}

    def evaluation(self):
        error = rh.call(lambda s, x: jnp.abs(x @ s["w"]).mean(), self.state, self.x, name="error")
        return {"error": error}


@pytest.fixture
def model(graph):
    return Model()


def quiet(values):
    return None


def loggers(model, cadences):
    names = ["loss", "norm", "rows", "loss"]
    return [
        rh.LoggingTensorHook({name: model.metrics[name]}, every_n_iter=n, formatter=quiet)
        for name, n in zip(names, cadences, strict=True)
    ]


def train(model, hooks, steps):
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(steps):
            sess.run(model.train_op, model.feeds)


def test_four_loggers_at_odd_cadences_need_no_compilation_but_that_of_the_step(model, compiled):
    train(model, loggers(model, (7, 10, 13, 15)), STEPS)
    assert compiled == ["jit(step)"]
    assert model.traced == 1


def more_hooks(model, directory):
    histograms = {
        7: rh.summary.histogram("grads", model.metrics["grads"]),
        10: rh.summary.histogram("weights", model.state["w"]),
    }
    return [
        *[
            rh.SummarySaverHook(n, output_dir=directory, summary_op=it)
            for n, it in histograms.items()
        ],
        rh.EvaluationHook(
            model.evaluation(), lambda: [model.feeds], 13, output_dir=directory / "eval"
        ),
    ]


def test_two_histograms_and_an_evaluation_need_one_compilation_each_and_one_together(
    model, compiled, tmp_path
):
    train(model, more_hooks(model, tmp_path), 200)
    assert sorted(compiled) == ["jit(fetches)"] * 3 + ["jit(step)"] * 2
    assert model.traced == 1
