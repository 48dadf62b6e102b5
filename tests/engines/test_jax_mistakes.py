"""Mistakes of users of JAX: one sentence at the line where they are made, with the cure."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def engine():
    return "jax"


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sum,
        jnp.sin,
        jnp.asarray,
        jax.jit(lambda x: x),
        lambda tensor: jnp.ones(2) + tensor,
        lambda tensor: jnp.dot(jnp.ones(2), tensor),
        lambda tensor: jnp.stack([tensor, tensor]),
    ],
)
def test_function_of_jax_called_with_a_tensor_names_the_cure(fn, graph):
    state = rh.Variable(jnp.ones(2), name="state")
    with pytest.raises((TypeError, ValueError), match=r"'state:0' is not an array.*rh\.call"):
        fn(state)


@jax.tree_util.register_pytree_node_class
class Model:
    """As a module of Equinox: a pytree that can be called, with a function among its leaves."""

    def __init__(self, weight, activation):
        self.weight, self.activation = weight, activation

    def __call__(self, x):
        return self.activation(x @ self.weight)

    def tree_flatten(self):
        return (self.weight, self.activation), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


@pytest.mark.parametrize("activation", [jax.nn.relu, np.tanh, len, "relu"])
def test_function_or_text_in_a_model_is_kept_aside(activation, graph):
    model = rh.Variable(Model(jnp.ones((2, 2)), activation), name="model")
    same = rh.call(lambda model: jnp.sum(model.weight) * (model.activation is activation), model)
    grown = rh.call(lambda model: Model(model.weight + 1, model.activation), model)
    with rh.Session(graph) as session:
        assert session.run(same) == 4
        assert session.run(model.assign(grown)).activation is activation
        assert session.run(model).weight.tolist() == [[2, 2], [2, 2]]


def test_module_that_is_closed_over_and_changed_is_explained(graph):
    class TraceContextError(Exception):
        """As Flax's, which refuses a change at another level of tracing."""

    def step(x):
        raise TraceContextError("Cannot mutate 'Param' from different trace level")

    out = rh.call(step, jnp.ones(2))
    with rh.Session(graph) as session, pytest.raises(TraceContextError) as caught:
        session.run(out)
    assert any("nnx.split" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float8_e4m3fn", "bfloat16"])
def test_small_dtypes_are_saved_or_refused_when_made(dtype, graph, tmp_path):
    v = rh.Variable(jnp.array([1, 0, 1]).astype(dtype), name="v")
    rh.train.create_global_step()
    with rh.Session(graph) as session, rh.Session(graph) as fresh:
        session.run(v.assign(rh.call(lambda v: v[::-1] * 0, v)))
        path = rh.Saver().save(session, tmp_path / "model.ckpt")
        rh.Saver().restore(fresh, path)
        assert fresh.run(v).dtype == v.initial_value.dtype
        assert not np.asarray(fresh.run(v)).astype(np.float32).any()


def test_complex128_is_saved(graph, tmp_path):
    with jax.enable_x64(True):
        v = rh.Variable(np.array([1 + 2j, 3]), name="v")
        rh.train.create_global_step()
        with rh.Session(graph) as session, rh.Session(graph) as fresh:
            session.run(v.assign(v * 2))
            path = rh.Saver().save(session, tmp_path / "model.ckpt")
            rh.Saver().restore(fresh, path)
            assert fresh.run(v).dtype == np.complex128
            assert fresh.run(v).tolist() == [2 + 4j, 6]


@pytest.mark.parametrize("odd", ["text", {"x": np.array(["text"])}, (1, ["text"])])
@pytest.mark.parametrize("names", ["train_op", ["loss"], ["train_op", "loss"]])
def test_text_that_is_fed_names_the_tensor(odd, names):
    graph = rh.jax.graph(lambda w, x: (w + 1, {"loss": x}), w=jnp.ones(2))
    with rh.Session(graph) as session:
        with pytest.raises(TypeError, match=r"^'x:0' is given .*text.*, which JAX cannot compile"):
            session.run(names, {"x": odd})
        assert session.run("w").tolist() == [1, 1]


def test_tensor_of_torch_that_is_fed_is_shown_by_its_form():
    import torch

    graph = rh.jax.graph(lambda w, x: (w + 1, {"loss": x}), w=jnp.ones(2))
    message = r"^'x:0' is given a torch.Tensor of shape \(9, 3\), .* such as numpy.asarray"
    with rh.Session(graph) as session, pytest.raises(TypeError, match=message):
        session.run("train_op", {"x": torch.ones(9, 3)})


def test_generator_of_numpy_as_a_state_names_the_keys():
    with pytest.raises(TypeError, match=r"noise is a Generator, which JAX.*noise=lambda: rh\.rand"):
        rh.jax.graph(lambda w, noise: w, w=0.0, noise=np.random.default_rng(0))


@pytest.mark.parametrize("fetches", ["train_op", ["train_op", "loss"]])
@pytest.mark.parametrize("rows", [(6,), (4, 4, 4, 6, 6)], ids=str)
def test_a_batch_is_compared_with_the_last_that_was_traced_in_what_jax_makes_of_both(fetches, rows):
    def step(weights, x, y):
        return weights, {"loss": jnp.mean(x @ weights - y)}

    graph = rh.jax.graph(step, weights=jnp.zeros(3))
    batches = [{"x": np.zeros((count, 3), np.float32), "y": np.float64(0)} for count in rows]
    with graph.as_default(), rh.MonitoredSession() as session:
        for batch in batches:
            session.run(fetches, batch)
        with pytest.raises(TypeError) as caught:
            session.run(fetches, {"x": np.zeros((6, 5)), "y": np.float32(0)})
        notes = "\n".join(caught.value.__notes__)
        assert "'x:0' is given float32[6, 5] here, and was given float32[6, 3] before" in notes
        assert "'y:0'" not in notes
        session.run(fetches, batches[-1])


def reshaping(w, x, batch_size):
    return w + x.reshape(-1, batch_size).sum(), {"loss": x.sum()}


def branching(w, x, batch_size):
    return (w + x.sum() if batch_size > 2 else w), {"loss": x.sum()}


def ranging(w, x, batch_size):
    return w + sum(range(batch_size)) + 0 * x.sum(), {"loss": x.sum()}


STATIC = {
    "jitted": functools.partial(jax.jit, static_argnums=2)(reshaping),
    "jitted by name": functools.partial(jax.jit, static_argnames="batch_size")(reshaping),
    "a shape": reshaping,
    "a branch": branching,
    "a range": ranging,
}


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("data", [True, False])
def test_argument_that_must_be_known_is_bound_as_the_error_says(name, data):
    step, x = STATIC[name], np.ones(8, np.float32)
    cure = r"functools\.partial\(\w+, batch_size=\.\.\.\)"
    with pytest.raises(Exception, match=r"static|concrete|Tracer|traced|Shapes|range") as caught:
        if data:
            rh.jax.graph(step, w=jnp.zeros(1), data=[(x, 4)])
        else:
            with rh.Session(rh.jax.graph(step, w=jnp.zeros(1))) as session:
                session.run("train_op", {"x": x, "batch_size": 4})
    assert re.search(cure, "\n".join(caught.value.__notes__))
    bound = functools.partial(step, batch_size=4)
    with rh.Session(rh.jax.graph(bound, w=jnp.zeros(1), data=[x])) as session:
        assert session.run(["train_op", "loss"])[1] == 8


@pytest.mark.parametrize("value", [jnp.sin, {"config": object()}])
def test_function_or_configuration_that_is_fed_names_the_cure(value):
    graph = rh.jax.graph(lambda w, x, how: (w + x, {"loss": x}), w=jnp.zeros(1))
    with rh.Session(graph) as session:
        with pytest.raises(TypeError, match=r"^'how:0' .*functools\.partial\(step, how=\.\.\.\)"):
            session.run("train_op", {"x": 1.0, "how": value})
