"""The jax engine compiles a step once, and what each hook adds once, whatever their cadences."""

import contextlib

import jax
import jax.extend
import jax.interpreters.mlir
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh
from runhooks.graph.nest import FetchList

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
    return names


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


def test_item_that_a_hook_asks_for_now_and_then_is_compiled_apart(model, compiled):
    row = model.metrics["rows"][3]
    hooks = [rh.LoggingTensorHook({"row": row}, every_n_iter=n, formatter=quiet) for n in (3, 5, 7)]
    train(model, hooks, 120)
    assert compiled == ["jit(step)", "jit(fetches)"]


def test_items_of_a_step_survive_the_next(model):
    whole, one = model.new_state["w"][:], model.new_state["w"][0]
    with rh.Session() as sess:
        first = sess.run([model.train_op, whole, one], model.feeds)
        before = [np.array(it) for it in first[1:]]
        second = sess.run([model.train_op, whole, one], model.feeds)
    for kept, copy, later in zip(first[1:], before, second[1:], strict=True):
        np.testing.assert_array_equal(kept, copy)
        assert not np.array_equal(kept, later)


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
            model.evaluation(), [model.feeds], every_n_steps=13, output_dir=directory / "eval"
        ),
    ]


def test_two_histograms_and_an_evaluation_need_one_compilation_each_and_one_together(
    model, compiled, tmp_path
):
    train(model, more_hooks(model, tmp_path), 200)
    assert sorted(compiled) == ["jit(fetches)"] * 3 + ["jit(step)"] * 2
    assert model.traced == 1


def test_rate_that_is_logged_is_computed_in_the_step_too(graph, compiled, tmp_path):
    step = rh.train.create_global_step()
    rate = 1.0 - step * 0.125  # on the host too, where a summary needs it
    w = rh.Variable(np.float32(0), name="w")
    train_op = rh.group(w.assign_add(rate), step.assign_add(1))
    hook = rh.SummarySaverHook(3, output_dir=tmp_path, summary_op=rh.summary.scalar("rate", rate))
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(5):
            sess.run(train_op)
        assert sess.run(w, hooks=False) == 5 - 10 * 0.125
    assert compiled == ["jit(step)", "jit(fetches)"]


@pytest.mark.slow
def test_hook_and_caller_see_one_random_key(graph):
    key = rh.random_key(seed=1)
    noise = rh.Variable(np.zeros((SIZE, SIZE), np.float32), name="noise")
    train_op = rh.group(noise.assign(rh.call(lambda k: jax.random.normal(k, (SIZE, SIZE)), key)))
    again = rh.call(lambda k: jax.random.normal(k, (SIZE, SIZE)).sum(), key)
    logged = []
    hook = rh.LoggingTensorHook({"again": again}, every_n_iter=2, formatter=logged.append)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(train_op)
            drawn = sess.run(noise, hooks=False)
    assert len(logged) == 2
    np.testing.assert_allclose(logged[-1]["again"], drawn.sum(), rtol=1e-4)


def test_metric_of_a_batch_is_read_whatever_the_size_of_the_batch(graph, compiled):
    x = rh.placeholder("x")
    w = rh.Variable(np.float32(0), name="w")
    total, each = rh.call(lambda w, x: (w + x.sum(), x * 2), w, x, num_outputs=2)
    train_op = rh.group(w.assign(total))
    got = []
    hook = rh.LoggingTensorHook({"each": each}, every_n_iter=1, formatter=got.append)
    sizes = [10, 2_000, 10, 20, 2_000]  # some are small, some are not
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for size in sizes:
            sess.run(train_op, {x: np.ones(size, np.float32)})
    for size, values in zip(sizes, got, strict=True):
        np.testing.assert_array_equal(values["each"], np.full(size, 2, np.float32))
    assert len(compiled) == 3


def test_compilations_are_logged_with_those_they_are_for(model, tmp_path, caplog):
    caplog.set_level("INFO", "runhooks")
    train(model, more_hooks(model, tmp_path)[:1], 3)
    lines = [line for line in caplog.messages if line.startswith("compiled")]
    assert [line.partition(" in ")[0] for line in lines] == [
        "compiled the step (2 operations) with the large values of its calls "
        "for the hook SummarySaverHook",
        "compiled 1 operation for the hook SummarySaverHook",
        "compiled the step (2 operations)",
    ]


def test_the_log_says_for_what_the_step_is_compiled_again(caplog):
    caplog.set_level("INFO", "runhooks")
    data = [np.ones(4, np.float32), np.ones(3, np.float32)]
    with rh.jax.graph(lambda w, x: (w + x.sum(), {"loss": w}), w=0.0, data=data).as_default():
        hooks = [rh.CallHook(lambda it: None, [rh.epoch_mean("loss")], every_n_epochs=1)]
        rh.train.train("train_op", None, hooks)
    lines = [line.partition(" in ")[0] for line in caplog.messages if "compiled" in line]
    assert "compiled 'epoch_mean/loss/reset'" in lines
    assert [line.partition(") ")[2] for line in lines if "the step" in line] == [
        "",
        "again, with 'data': float32[3]",
    ]


class LostError(Exception):
    """The process is gone."""


def train_until_lost(directory, stops):
    """Train to step 40 in sessions that are lost at ``stops``; return the last checkpoint."""
    for stop in (*stops, 40):
        with rh.Graph("jax").as_default():
            model = Model()
            hooks = [*more_hooks(model, directory), *loggers(model, (3, 5, 7, 9))]
            with (
                contextlib.suppress(LostError),
                rh.MonitoredTrainingSession(
                    checkpoint_dir=directory,
                    hooks=hooks,
                    save_checkpoint_steps=4,
                    save_checkpoint_secs=None,
                    save_summaries_steps=None,
                    log_step_count_steps=None,
                ) as sess,
            ):
                while sess.global_step < stop:
                    sess.run(model.train_op, model.feeds)
                if stop != 40:
                    raise LostError
    return rh.load(directory)


def test_run_that_is_lost_and_resumed_ends_with_the_same_bits(tmp_path):
    undisturbed = train_until_lost(tmp_path / "undisturbed", ())
    resumed = train_until_lost(tmp_path / "lost", (14, 15, 27))
    assert undisturbed["global_step"] == resumed["global_step"] == 40
    for name in ("w", "count"):
        np.testing.assert_array_equal(undisturbed["state"][name], resumed["state"][name])


# before and after the step


def without_lowering():
    """Return a function that JAX can trace, but not compile."""
    primitive = jax.extend.core.Primitive("unknown")
    primitive.def_abstract_eval(lambda x: x)
    return primitive.bind


@pytest.mark.parametrize("depends_on", ["old state", "new state"])
def test_request_that_fails_when_it_is_compiled(depends_on, model):
    value = model.state["w"] if depends_on == "old state" else model.new_state["w"]
    broken = rh.call(without_lowering(), value, name="broken")
    hook = rh.LoggingTensorHook({"broken": broken}, every_n_iter=1)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        with pytest.raises(NotImplementedError) as caught:
            sess.run(model.train_op, model.feeds)
        # The device had given up the old values before it came to the second.
        steps = 0 if depends_on == "old state" else 1
        assert sess.global_step == steps
        assert sess.run(model.state, hooks=False)["count"] == steps
    notes = caught.value.__notes__
    assert any("the hook LoggingTensorHook" in note for note in notes)
    assert any("have their new values" in note for note in notes) == bool(steps)


def test_request_that_is_interrupted_while_it_is_compiled_leaves_the_new_state(model):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    primitive = jax.extend.core.Primitive("interrupted")
    primitive.def_abstract_eval(lambda x: x)
    jax.interpreters.mlir.register_lowering(primitive, interrupted)
    broken = rh.call(primitive.bind, model.new_state["w"])
    with rh.Session() as sess:
        with pytest.raises(KeyboardInterrupt):
            sess.run(FetchList([("the caller", model.train_op), ("the hook", broken)]), model.feeds)
        assert sess.run(model.state)["count"] == 1
        assert sess.global_step == 1


def test_step_that_jax_has_forgotten_is_compiled_again_once(model, compiled):
    hook = rh.LoggingTensorHook(
        {"loss": model.metrics["loss"], "w": model.new_state["w"]}, every_n_iter=1, formatter=quiet
    )
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(2):
            sess.run(model.train_op, model.feeds)
        jax.clear_caches()
        compiled.clear()
        for _ in range(3):
            sess.run(model.train_op, model.feeds)
    assert sorted(compiled) == ["jit(fetches)", "jit(step)"]
