"""States of Python numbers and weakly typed arrays get the dtypes that ``jax.lax.scan`` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh


def weak(value):
    """A weakly typed array, as a jitted function returns for a number in it."""
    return jax.jit(lambda: jnp.broadcast_to(value, (2,)))()


def total(state, x):
    return {"n": state["n"] + 1, "total": state["total"] + x}


def mixed(state, x):
    return {"n": state["n"] + state["total"], "total": state["total"] * 2}


def swapped(state, x):
    return {"n": state["total"] * jnp.int8(1), "total": state["n"] + x}


def same(state, x):
    return {"n": jnp.float32(state["n"]), "total": state["total"] + 0.5}


XS = np.float32(1.5), np.int8(3), jnp.bfloat16(1.5)
PROGRAMS = {
    f"{step.__name__}, {n!r}, {start!r}": (step, n, start, XS[(i + k) % 3])
    for i, step in enumerate((total, mixed, swapped, same))
    for k, (n, start) in enumerate([(0, 0), (0.0, 1), (1, 0.5)])
}
PROGRAMS["an array"] = (total, 0, lambda: weak(0), np.float32(1.5))
PROGRAMS["an array, bfloat16"] = (total, 0, lambda: weak(0.0), jnp.bfloat16(1.5))
PROGRAMS["an array made in a function"] = (total, 0, lambda: weak(1), np.complex64(1j))


def scanned(step, start, x):
    """The states after 1, 2 and 3 steps, or None if ``jax.lax.scan`` refuses them."""
    try:
        return [
            jax.lax.scan(lambda state, _: (step(state, x), None), start, None, length)[0]
            for length in (1, 2, 3)
        ]
    except TypeError:
        return None


def described(state):
    return {key: (str(leaf.dtype), leaf.tolist()) for key, leaf in state.items()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_dtypes_are_those_of_scan_and_the_step_is_compiled_once(program, caplog):
    step, n, start, x = PROGRAMS[program]
    fetches = "train_op" if len(program) % 2 else ["train_op", "loss"]
    start = {"n": n, "total": start() if callable(start) else start}
    expected = scanned(step, start, x)
    graph = rh.jax.graph(lambda state, x: (step(state, x), {"loss": x}), state=start)
    with rh.Session(graph) as session, caplog.at_level("INFO"):
        if expected is None:
            with pytest.raises(ValueError, match="keeps its"):
                session.run(fetches, {"x": x})
            return
        for state in expected:
            session.run(fetches, {"x": x})
            assert described(session.run("state")) == described(state)
    assert caplog.text.count("compiled the step") == 1


def halved(state, x):
    return {"rate": state["rate"] / 2, "w": state["w"] - state["rate"] * x.astype("bfloat16")}


@pytest.mark.parametrize(
    ("step", "start"),
    [(total, {"n": 0, "total": 0}), (halved, {"rate": 0.3, "w": jnp.ones(2, "bfloat16")})],
)
def test_states_go_on_from_a_checkpoint_as_if_there_had_been_none(step, start, tmp_path):
    for last_step in (2, 3):
        graph = rh.jax.graph(lambda state, x: step(state, x), state=start)
        hooks = [rh.StopAtStepHook(last_step=last_step)]
        with (
            graph.as_default(),
            rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session,
        ):
            while not session.should_stop():
                session.run("train_op", {"x": np.float32(1.5)})
    expected = scanned(step, start, np.float32(1.5))[-1]
    assert described(rh.load(tmp_path)["state"]) == described(expected)


def test_an_integer_that_jax_cannot_promote_is_refused():
    with pytest.raises(ValueError, match="no available implicit dtype promotion"):
        rh.jax.graph(lambda state: (jnp.asarray(100), {}), state=jnp.zeros((), "int4"))


def test_number_that_the_checkpoint_has_in_an_unfitting_dtype_is_refused(tmp_path):
    def graph(start):
        return rh.jax.graph(lambda w: w + 1, w=start)

    with graph(0.5).as_default(), rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        session.run("train_op")
    with (
        graph(jnp.int32(0)).as_default(),
        pytest.raises(ValueError, match=r"'w' must be int32\[\], got float32\[\]"),
    ):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path)


@pytest.mark.parametrize("x64", [False, True])
def test_weakly_typed_states_come_back_from_a_checkpoint_as_they_were(x64, tmp_path):
    start = {"n": weak(0), "rate": jnp.asarray(0.5)}
    with jax.enable_x64(x64):
        for _ in range(2):
            graph = rh.jax.graph(lambda s: {"n": -s["n"], "rate": -s["rate"]}, s=start)
            with (
                graph.as_default(),
                rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session,
            ):
                restored = session.run("s")
                session.run("train_op")
    assert {key: (str(leaf.dtype), leaf.weak_type) for key, leaf in restored.items()} == {
        key: (str(leaf.dtype), True) for key, leaf in start.items()
    }


def test_a_feed_may_be_weakly_typed_in_one_run_and_not_in_the_next():
    """What a hook asks for has another dtype then, and another size."""
    seen = []

    def train_step(w, scale):
        return w + 1, {"scaled": w * scale}

    graph = rh.jax.graph(train_step, w=jnp.ones(1500, jnp.bfloat16), scale=lambda: rh.placeholder())
    scales = [jnp.asarray(2.0), jnp.asarray(2.0), jnp.float32(2.0), jnp.asarray(2.0)]
    with graph.as_default():
        hook = rh.CallHook(lambda scaled: seen.append(scaled), ["scaled"], every_n_steps=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for scale in scales:
                session.run("train_op", {"scale": scale})
    expected = [jnp.full(1500, n, jnp.bfloat16) * it for n, it in enumerate(scales, 1)]
    assert [it.dtype for it in seen] == [it.dtype for it in expected]
    assert all(np.array_equal(a, b) for a, b in zip(seen, expected, strict=True))


@pytest.mark.parametrize("x64_then", [False, True])
@pytest.mark.parametrize("x64", [False, True])
def test_weakly_typed_arrays_in_the_states_of_hooks_come_back_as_they_were(x64, x64_then, tmp_path):
    def kept(loop, enabled):
        graph = rh.jax.graph(lambda x: x + 1, x=np.float32(0))
        hooks = [rh.SavedStateHook(loop=loop)]
        with (
            jax.enable_x64(enabled),
            graph.as_default(),
            rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session,
        ):
            session.run("train_op")
        return loop

    def made():
        numbers = {repr(it): jnp.asarray(it) for it in (3, 0.1, 1j)}
        return {**numbers, "many": weak(0.5), "none": weak(2)[:0], "strong": jnp.float32(0.5)}

    with jax.enable_x64(x64):
        kept(made(), x64)
    with jax.enable_x64(x64 and x64_then):
        expected = made()  # JAX has no arrays of 64 bits, unless they are enabled
    back = kept({}, x64_then)
    assert described(back) == described(expected)
    assert [it.weak_type for it in back.values()] == [True] * 5 + [False]
    product = back["0.1"] * jnp.ones(2, jnp.bfloat16)
    assert product.dtype == jnp.bfloat16
