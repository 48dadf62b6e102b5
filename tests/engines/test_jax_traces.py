"""A step of ``rh.jax.graph`` is traced once: for the names of its outputs, and to be compiled."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh

BATCHES = [np.float32([1, 2])] * 4


@pytest.fixture
def compiled():
    """The names of the functions that XLA has compiled since."""
    names = []

    def listen(event, duration, fun_name="", **kwargs):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return names


class Counted:
    """A step that counts how often Python runs it."""

    def __init__(self, step):
        self.step = step
        self.traced = 0

    def __call__(self, w, x):
        self.traced += 1
        return self.step(w, x)


def trained(step, w, data=BATCHES, fetches=(), hooks=()):
    graph = rh.jax.graph(step, w=w, data=data)
    with graph.as_default(), rh.MonitoredSession(hooks=list(hooks)) as session:
        return [session.run(["train_op", *fetches])[1:] for _ in data]


def test_a_step_is_traced_once_with_hooks_too(tmp_path):
    step = Counted(lambda w, x: (w + x, {"loss": w.sum(), "grads": {"w": w * x}}))
    logged = []
    hooks = [
        rh.LoggingTensorHook(["loss", "grads/w"], every_n_iter=2, formatter=logged.append),
        rh.NanTensorHook("loss"),
    ]
    losses = trained(step, jnp.zeros(2), fetches=["loss"], hooks=hooks)
    assert [float(loss) for (loss,) in losses] == [0, 3, 6, 9]
    assert logged[-1]["grads/w"].tolist() == [2, 8]
    assert step.traced == 1


def test_a_trained_state_of_flax_is_traced_once():
    import optax
    from flax.training.train_state import TrainState

    def train_step(state, x):
        nonlocal traced
        traced += 1
        grads = jax.grad(lambda params: ((params["w"] - x) ** 2).sum())(state.params)
        return state.apply_gradients(grads=grads), {"step": state.step}

    traced = 0
    state = TrainState.create(apply_fn=None, params={"w": jnp.zeros(2)}, tx=optax.adam(0.1))
    graph = rh.jax.graph(train_step, state=state, data=BATCHES)
    with graph.as_default(), rh.MonitoredSession() as session:
        steps = [int(session.run(["train_op", "step"])[1]) for _ in BATCHES]
    assert (steps, traced) == ([0, 1, 2, 3], 1)


def test_elements_of_other_shapes_and_dtypes_are_traced_anew():
    step = Counted(lambda w, x: (w + x.sum(), {"mean": x.mean(), "x": x}))
    data = [np.float32([1, 2]), np.float32([1, 2, 3]), np.int32([[7]]), np.float32([5, 5])]
    got = trained(step, jnp.float32(0), data, ["mean", "x", "w"])
    assert [float(mean) for mean, _, _ in got] == [1.5, 2, 7, 5]
    assert [x.dtype for _, x, _ in got] == [it.dtype for it in data]
    assert float(got[-1][-1]) == 16  # as the last run found it
    assert step.traced == 3


def test_precision_that_changes_before_the_first_run_counts():
    graph = rh.jax.graph(lambda w, x: (w, {"zeros": jnp.zeros(2)}), w=jnp.zeros(2), data=BATCHES)
    jax.config.update("jax_enable_x64", True)
    try:
        with graph.as_default(), rh.MonitoredSession() as session:
            assert session.run(["train_op", "zeros"])[1].dtype == np.float64
    finally:
        jax.config.update("jax_enable_x64", False)


def test_outputs_that_are_states_or_one_another_are_right_and_survive():
    def step(w, x):
        new = w + x
        return new, {"old": w, "again": w, "new": new, "x": x, "x_too": x}

    got = trained(step, jnp.zeros(2), fetches=["old", "again", "new", "x", "x_too"])
    for number, values in enumerate(got):
        wanted = [number * BATCHES[0]] * 2 + [(number + 1) * BATCHES[0]] + [BATCHES[0]] * 2
        np.testing.assert_array_equal(values, wanted)


def test_large_output_that_is_the_new_state_needs_no_second_compilation_of_the_step(compiled):
    def step(w, x):
        new = w + x.sum()
        return new, {"new": new}

    logged = []
    hook = rh.LoggingTensorHook(["new"], every_n_iter=2, formatter=logged.append)
    trained(step, jnp.zeros(3000), hooks=[hook])
    assert [values["new"][0] for values in logged] == [3, 9]
    assert compiled.count("jit(step)") == 1


def test_outputs_that_are_no_arrays_stay_what_they_are():
    held = jnp.arange(3)
    step = Counted(lambda w, x: (w, {"rate": 0.1, "count": 3, "table": np.arange(2), "held": held}))
    ((rate, count, table, found), *_) = trained(
        step, jnp.zeros(2), fetches=["rate", "count", "table", "held"]
    )
    assert (float(rate), int(count)) == (pytest.approx(0.1), 3)
    assert (table.tolist(), found.tolist()) == ([0, 1], [0, 1, 2])
    assert step.traced == 1


def test_a_number_that_does_not_fit_the_state_is_an_error_not_another_number():
    with pytest.raises(ValueError, match="300"):
        rh.jax.graph(lambda w, x: (300, {}), w=jnp.uint8(0), data=BATCHES)


def test_callbacks_are_called_in_each_run_in_order():
    from jax.experimental import io_callback

    seen = []

    def note(w):
        seen.append(float(w))
        return np.float32(w + 1)

    def step(w, x):
        return io_callback(note, jax.ShapeDtypeStruct((), jnp.float32), w, ordered=True), {}

    trained(step, jnp.float32(0))
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3]


def test_rules_of_derivatives_hold():
    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, grad: (7 * grad,))

    def step(w, x):
        kept = jax.checkpoint(lambda w: square(w) + jnp.sin(w))
        return w, {"grad": jax.grad(kept)(w)}

    ((grad,), *_) = trained(step, jnp.float32(0), fetches=["grad"])
    assert float(grad) == 8


def test_an_error_of_the_step_is_raised_as_it_was():
    def step(w, x):
        if len(x) == 3:
            raise LookupError("three")
        return w + x.sum(), {}

    with pytest.raises(LookupError, match="three"):
        trained(step, jnp.float32(0), [np.ones(2), np.ones(3)])


def test_the_state_of_a_session_is_gone_when_it_is_closed():
    size = 4321
    graph = rh.jax.graph(lambda w, x: (w + x, {}), w=lambda: jnp.zeros(size), data=[np.float32(1)])
    gc.collect()
    gc.disable()  # what refers to one another lives until it is collected
    try:
        with graph.as_default(), rh.MonitoredSession() as session:
            session.run("train_op")
            assert any(it.shape == (size,) for it in jax.live_arrays())
        assert not any(it.shape == (size,) for it in jax.live_arrays())
    finally:
        gc.enable()


def test_sessions_of_one_graph_are_a_sweep_that_compiles_once(compiled):
    seed = 0
    step = Counted(lambda w, x: (w + x, {"w": w}))
    graph = rh.jax.graph(step, w=lambda: jnp.full(2, float(seed), jnp.float32), data=BATCHES)
    for seed in range(3):
        with graph.as_default(), rh.MonitoredSession() as session:
            compiled.clear()
            assert session.run(["train_op", "w"])[1].tolist() == [seed, seed]
            assert ("jit(step)" in compiled) == (seed == 0)
            while not session.should_stop():
                session.run("train_op")
    assert step.traced == 1
