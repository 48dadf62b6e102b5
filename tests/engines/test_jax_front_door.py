"""``rh.jax.graph``: the user's own step, in the ways in which users of JAX write it."""

from typing import NamedTuple

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import runhooks as rh


def batches(step):
    while True:
        x = np.random.default_rng(step).normal(size=(8, 2)).astype(np.float32)
        yield x, x @ np.array([[2.0], [-3.0]], np.float32)
        step += 1


def params():
    return {"w": jnp.zeros((2, 1)), "b": jnp.zeros(1)}


def loss_of(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def sgd(params, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), {"loss": loss, "grads": grads}


def train(graph, steps, fetches="loss", directory=None, **feeds):
    """Make steps until the global step is ``steps``; return what each gave for ``fetches``."""
    hooks = [rh.StopAtStepHook(last_step=steps)]
    values = []
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session,
    ):
        while not session.should_stop():
            values.append(session.run(["train_op", fetches], feeds)[1])
    return values


def linen_graph():
    model, tx = linen.Dense(1), optax.adam(0.1)

    def create_state():
        variables = model.init(jax.random.key(0), jnp.ones((1, 2)))
        return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx)

    @jax.jit
    def train_step(state, x, y):
        def loss_of(params):
            return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

        loss, grads = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=grads), {"loss": loss, "grads": grads}

    return rh.jax.graph(train_step, state=create_state, data=batches)


def equinox_graph():
    class Net(eqx.Module):
        linear: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            self.linear = eqx.nn.Linear(2, 1, key=key)
            self.norm = eqx.nn.BatchNorm(1, "batch", mode="ema")
            self.dropout = eqx.nn.Dropout(0.1)

        def __call__(self, x, state, key):
            x, state = self.norm(self.linear(x), state)
            return self.dropout(x, key=key), state

    model, state = eqx.nn.make_with_state(Net)(jax.random.key(0))
    tx = optax.adam(0.1)

    @eqx.filter_jit
    def train_step(model, state, opt_state, x, y, key):
        def loss_of(model, state):
            keys = jax.random.split(key, len(x))
            axes = {"axis_name": "batch", "in_axes": (0, None, 0), "out_axes": (0, None)}
            predicted, state = jax.vmap(model, **axes)(x, state, keys)
            return jnp.mean((predicted - y) ** 2), state

        (loss, state), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(model, state)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), state, opt_state, {"loss": loss, "grads": grads}

    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return rh.jax.graph(train_step, model=model, state=state, opt_state=opt_state, data=batches)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(self.norm(self.linear(x))))


def nnx_graph():
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, grads)
        return {"loss": loss, "grads": grads}

    return rh.jax.graph(train_step, model=model, optimizer=optimizer, data=batches)


def plain_graph():
    return rh.jax.graph(sgd, params=params, data=batches)


GRAPHS = [plain_graph, linen_graph, equinox_graph, nnx_graph]


@pytest.mark.parametrize("make", GRAPHS)
def test_step_learns_and_resumes(make, tmp_path):
    losses = train(make(), 8, directory=tmp_path / "one")
    assert losses[-1] < losses[0]
    train(make(), 3, directory=tmp_path / "two")
    assert train(make(), 8, directory=tmp_path / "two") == losses[3:]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (plain_graph, ["params/w", "grads/w"]),
        (linen_graph, ["state/params/kernel", "grads/kernel", "state/opt_state/0/mu/kernel"]),
        (equinox_graph, ["model/linear/weight", "grads/linear/weight"]),
        (nnx_graph, ["model/linear/kernel", "grads/linear/kernel", "optimizer/step"]),
    ],
)
def test_everything_has_a_name(make, names):
    graph = make()
    with rh.Session(graph) as session:
        for name, value in zip(names, session.run(names), strict=True):
            assert isinstance(value, jax.Array), name
        for name in names:
            with pytest.raises(ValueError, match=f"nothing is named '{name}_'.*'{name}'"):
                graph[f"{name}_"]


@pytest.mark.parametrize(("make", "kind"), [(equinox_graph, eqx.Module), (nnx_graph, nnx.Module)])
def test_model_is_the_users_own_where_it_is_fetched_and_called(make, kind):
    graph = make()
    with graph.as_default():
        name = rh.call(lambda model, x: (type(model).__name__, x), graph["model"], np.ones(2))
    with rh.Session(graph) as session:
        assert isinstance(session.run("model"), kind)
        assert session.run(name)[0] == "Net"


def test_placeholders_stand_for_what_is_no_state():
    graph = rh.jax.graph(sgd, params=params)
    x, y = next(batches(0))
    assert train(graph, 2, x=x, y=y)[0] == np.mean(np.square(y))
    with pytest.raises(ValueError, match="placeholder '[xy]:0'.*not fed"):
        train(graph, 2)
    with pytest.raises(ValueError, match="nothing is named 'los'.*mean 'loss'"):
        train(rh.jax.graph(sgd, params=params), 2, "los", x=x, y=y)


class Pair(NamedTuple):
    w: jax.Array
    b: jax.Array


@pytest.mark.parametrize("returned", ["state, loss", "loss, state", "state", "dict", "grads"])
def test_state_is_found_in_the_result(returned):
    def train_step(pair, x):
        new, loss = Pair(pair.w + 1, pair.b), x.sum()
        return {
            "state, loss": (new, loss),
            "loss, state": (loss, new),
            "state": new,
            "dict": {"pair": new, "loss": loss},
            "grads": (new, loss, pair),
        }[returned]

    pair = Pair(jnp.zeros(2), jnp.zeros(()))
    graph = rh.jax.graph(train_step, pair=pair, data=[np.ones(2, np.float32)] * 3)
    assert [it.w.tolist() for it in train(graph, 3, "pair")] == [[i, i] for i in range(3)]
    graph["pair/w"]
    outputs = {"state": [], "dict": ["loss"], "grads": ["output/0", "output/1/w"]}
    for name in outputs.get(returned, ["output"]):
        assert graph[name].name == f"{name}:0"
