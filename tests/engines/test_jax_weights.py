"""Weights of JAX: in the structure, with the dtypes and on the devices of an example."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import runhooks as rh


def saved(directory, **variables):
    """The path of a checkpoint with these variables."""
    with rh.Graph("jax").as_default():
        rh.train.get_or_create_global_step()
        for name, value in variables.items():
            rh.Variable(value, name=name)
        with rh.Session() as session:
            return rh.Saver().save(session, directory / "model.ckpt", global_step=0)


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if isinstance(other, jax.Array):
            assert isinstance(one, jax.Array)
            assert one.dtype == other.dtype
            if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
                one, other = jax.random.key_data(one), jax.random.key_data(other)
            np.testing.assert_array_equal(one, other)


def train_state(seed):
    model = nn.Dense(3)
    params = model.init(jax.random.key(seed), jnp.ones((1, 2)))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))
    return state.apply_gradients(grads=params)


def test_a_train_state_of_flax(tmp_path):
    state, other = train_state(0), train_state(1)
    path = saved(tmp_path, state=state)
    found = rh.load(path, "state", like=other)
    assert_equal(found, other.replace(params=state.params, opt_state=state.opt_state))
    assert type(found.step) is type(other.step)
    assert found.tx is other.tx
    assert_equal(rh.load(path, "state/params", like=other.params), state.params)
    abstract = jax.eval_shape(lambda: other)
    assert_equal(rh.load(path, "state/params", like=abstract.params), state.params)
    kernel = rh.load(path)["state"]["params"]["kernel"]
    np.testing.assert_array_equal(kernel, state.params["kernel"])


class Net(nnx.Module):
    def __init__(self, seed):
        rngs = nnx.Rngs(seed)
        self.dense, self.drop = nnx.Linear(2, 3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)


def test_a_module_and_a_state_of_nnx(tmp_path):
    net, other = Net(0), Net(1)
    path = saved(tmp_path, state=nnx.state(net))
    state = rh.load(path, "state", like=nnx.state(other))
    assert type(state) is nnx.State
    nnx.update(other, state)
    np.testing.assert_array_equal(other.dense.kernel[...], net.dense.kernel[...])
    found = rh.load(path, "state", like=Net(2))
    assert isinstance(found, Net)
    images = jnp.ones((1, 2))
    np.testing.assert_array_equal(found.dense(images), net.dense(images))
    np.testing.assert_array_equal(found.drop(images), net.drop(images))  # the same random key
    abstract = nnx.state(nnx.eval_shape(lambda: Net(0)), nnx.Param)
    params = rh.load(path, "state", like=abstract)
    np.testing.assert_array_equal(params["dense"]["kernel"][...], net.dense.kernel[...])


def test_a_module_of_nnx_that_does_not_fit_is_told_by_the_names_in_checkpoints(tmp_path):
    path = saved(tmp_path, state=nnx.state(Net(0)))
    wider = nnx.Linear(2, 4, rngs=nnx.Rngs(0))
    with pytest.raises(
        ValueError, match=r"'bias' is float32\[4\], 'state/dense/bias' is"
    ) as caught:
        rh.load(path, "state/dense", like=wider)
    assert "/value" not in str(caught.value)
    lacking = {"layer": wider}
    with pytest.raises(ValueError, match="nothing for layer/bias, layer/kernel; did") as caught:
        rh.load(path, "state/dense", like=lacking)
    assert "/value" not in str(caught.value)


def test_names_without_the_wrappers_of_nnx(tmp_path):
    path = saved(tmp_path, state={"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}})
    state = rh.load(path, "state", like=nnx.state(Net(0), nnx.Param))
    assert state["dense"]["kernel"][...].tolist() == [[1, 1, 1]] * 2


def test_a_module_of_equinox(tmp_path):
    model, other = (eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(seed)) for seed in (0, 1))
    path = saved(tmp_path, model=eqx.filter(model, eqx.is_array))
    found = rh.load(path, "model", like=other)
    assert found.activation is other.activation
    assert_equal(eqx.filter(found, eqx.is_array), eqx.filter(model, eqx.is_array))
    np.testing.assert_array_equal(found(jnp.ones(2)), model(jnp.ones(2)))


def test_random_keys(tmp_path):
    keys = {"new": jax.random.key(3), "many": jax.random.split(jax.random.key(4), 5)}
    keys["other"] = jax.random.key(5, impl="rbg")
    path = saved(tmp_path, keys=keys)
    assert_equal(rh.load(path, "keys", like=keys), keys)
    assert_equal(rh.load(path, "keys", like=jax.eval_shape(lambda: keys)), keys)
    assert rh.load(path, "keys/new").tolist() == jax.random.key_data(keys["new"]).tolist()


def test_what_does_not_fit(tmp_path):
    path = saved(tmp_path, state=train_state(0).params)
    form = jax.ShapeDtypeStruct((2, 4), jnp.float32)
    with pytest.raises(ValueError, match=r"'kernel' is float32\[2, 4\].*float32\[2, 3\]"):
        rh.load(path, "state", like={"kernel": form})
    with pytest.raises(ValueError, match="nothing for weight, but for .*kernel"):
        rh.load(path, "state", like={"weight": form, "kernel": train_state(0).params["kernel"]})
    bias = jax.ShapeDtypeStruct((3,), jnp.bfloat16)
    assert rh.load(path, "state", like={"bias": bias})["bias"].dtype == jnp.bfloat16


MESHES = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import runhooks as rh

jax.config.update("jax_num_cpu_devices", 8)
devices = np.array(jax.devices())
before, after = Mesh(devices.reshape(4, 2), ("a", "b")), Mesh(devices.reshape(2, 4), ("x", "y"))
values = {"w": jnp.arange(64.0).reshape(8, 8), "b": jnp.arange(8.0), "key": jax.random.key(1)}
specs = {"w": P("a", "b"), "b": P("b"), "key": P()}
put = lambda it, mesh, spec: jax.device_put(it, NamedSharding(mesh, spec))
with rh.Graph("jax").as_default():
    rh.Variable({name: put(it, before, specs[name]) for name, it in values.items()}, name="state")
    with rh.Session() as session:
        path = rh.Saver().save(session, sys.argv[1] + "/model.ckpt")

specs = {"w": P("y", "x"), "b": P(("x", "y")), "key": P()}
shardings = {name: NamedSharding(after, spec) for name, spec in specs.items()}
forms = jax.eval_shape(lambda: values)
abstract = {
    name: jax.ShapeDtypeStruct(it.shape, it.dtype, sharding=shardings[name])
    for name, it in forms.items()
}
concrete = {name: put(jnp.zeros_like(it) if name != "key" else it, after, specs[name])
            for name, it in values.items()}
for like in (abstract, concrete):
    found = rh.load(path, "state", like=like)
    for name, it in values.items():
        assert found[name].sharding == shardings[name], (name, found[name].sharding)
        data = jax.random.key_data if name == "key" else lambda x: x
        np.testing.assert_array_equal(data(found[name]), data(it))
    print({shard.data.shape for shard in found["w"].addressable_shards})
two = NamedSharding(Mesh(devices[:2], "z"), P("z"))
half = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=two)
found = rh.load(path, "state/b", like=half)
print(sorted(device.id for device in found.devices()), found.tolist())
"""


def test_onto_another_mesh(jax_launcher, tmp_path):
    status, said = jax_launcher.run(tmp_path, MESHES, tmp_path)
    assert status == 0, said
    assert said.splitlines() == [
        *["{(2, 4)}"] * 2,
        "[0, 1] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]",
    ]
