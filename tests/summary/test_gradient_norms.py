import jax.numpy as jnp
import numpy as np
import pytest
import torch

import runhooks as rh
from runhooks.testing import read_events

GRADIENTS = {
    "conv": {"kernel": np.float32([[3.0, 0.0]]), "bias": np.float32([4.0])},
    "scale": np.float32([12.0]),
}
NORMS = {"gradient_norm": 13.0, "gradient_norm/conv": 5.0, "gradient_norm/scale": 12.0}


def written(summary):
    """The values by tag as a reader of the event file has them."""
    read = rh.summary.Summary.FromString(summary.SerializeToString())
    return {value.tag: value.data for value in read}


def norms_of(op):
    with rh.Session() as session:
        return written(session.run(op))


@pytest.mark.every_engine
def test_of_each_layer_and_of_all_together(graph):
    gradients = rh.call(lambda x: {**GRADIENTS, "x": x}, 0 * rh.Variable(np.float32(1.0)))
    found = norms_of(rh.summary.gradient_norms(gradients))
    assert found == {**NORMS, "gradient_norm/x": 0.0}
    assert graph.get_collection(rh.GraphKeys.SUMMARIES) != []


@pytest.mark.every_engine
def test_a_bare_array_has_one_norm(graph):
    rh.Variable(np.float64([3.0, 4.0]), name="w")
    assert norms_of(rh.summary.gradient_norms("w:0", "norm", family="f")) == {"f/f/norm": 5.0}


@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_short_floats_are_summed_in_float32(graph, engine):
    ones = np.ones(1000, jnp.bfloat16)
    found = norms_of(rh.summary.gradient_norms(rh.Variable(ones, name="w")))
    assert found["gradient_norm"] == pytest.approx(1000**0.5)


def test_complex_numbers_have_a_magnitude(graph):
    w = rh.Variable(np.complex64([3j, 4.0]), name="w")
    assert norms_of(rh.summary.gradient_norms(w)) == {"gradient_norm": 5.0}


def test_gradients_of_a_step_of_jax(tmp_path):
    def train_step(state):
        return state, {"grads": GRADIENTS}

    with rh.jax.graph(train_step, state=GRADIENTS).as_default():
        rh.summary.gradient_norms("grads")
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_summaries_steps=1, log_step_count_steps=None
        ) as sess:
            sess.run("train_op")
    found = {event.tag: event.value for event in read_events(tmp_path)}
    assert {tag: it for tag, it in found.items() if "norm" in tag} == NORMS


def test_gradients_of_a_module_of_pytorch():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    with rh.torch.graph(step, model=model).as_default():
        op = rh.summary.gradient_norms("gradients/model")
        with rh.Session() as session:
            _, found = session.run(["train_op", op], {"x": torch.ones(1, 2)})
    layers = [
        float(torch.cat([p.grad.flatten() for p in layer.parameters()]).norm()) for layer in model
    ]
    assert written(found) == {
        "gradient_norm": pytest.approx(np.hypot(*layers)),
        "gradient_norm/0": pytest.approx(layers[0]),
        "gradient_norm/1": pytest.approx(layers[1]),
    }


@pytest.mark.parametrize("is_whole", [True, False])
def test_tied_weights_count_once_in_the_norm_of_all(is_whole):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())
        optimizer.step()

    graph = rh.torch.graph(step, model=model, optimizer=optimizer)
    with graph.as_default():
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        parts = {name: graph[f"gradients/model/{name}"] for name in names}
        op = rh.summary.gradient_norms("gradients/model" if is_whole else parts)
        with rh.Session() as session:
            _, found = session.run(["train_op", op], {"x": torch.ones(1, 3)})
    layers = [
        float(torch.nn.utils.get_total_norm([p.grad for p in layer.parameters()]))
        for layer in model
    ]
    assert len(names) == 4
    assert written(found) == {
        "gradient_norm": pytest.approx(norms[0]),
        "gradient_norm/0": pytest.approx(layers[0]),
        "gradient_norm/1": pytest.approx(layers[1]),
    }


@pytest.mark.every_engine
def test_one_array_that_is_returned_for_two_parameters_counts_twice(graph):
    gradient = 1 * rh.Variable(np.float32([3.0]), name="w")
    same = rh.call(lambda it: {"a": it, "b": it}, gradient)
    found = norms_of(rh.summary.gradient_norms(same))
    assert found["gradient_norm"] == pytest.approx(18**0.5)


def test_what_is_no_tensor_is_refused(graph):
    with pytest.raises(TypeError, match="gradient norms summary 'gradient_norm' needs a tensor"):
        rh.summary.gradient_norms(np.linalg.norm)
    with pytest.raises(ValueError, match="no .* is named 'grads'"):
        rh.summary.gradient_norms("grads")
