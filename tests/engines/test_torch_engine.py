"""The torch engine: variables are values, whatever the functions do with the tensors they get."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh


@pytest.fixture
def engine():
    return "torch"


def test_function_may_change_what_it_is_handed(graph):
    def doubled_in_place(w):
        return w.mul_(2)

    v = rh.Variable(torch.ones(3), name="v")
    other = rh.call(lambda w: w.clone(), v)
    with rh.Session(graph) as sess:
        sess.run(rh.call(doubled_in_place, v))
        assert sess.run(v).tolist() == [1, 1, 1]
        sess.run(v.assign(rh.call(doubled_in_place, v)))
        assert sess.run(other).tolist() == [2, 2, 2]


def test_tensor_that_is_fed_and_assigned_stays_the_callers(graph):
    x = rh.placeholder("x")
    v = rh.Variable(torch.zeros(2), name="v")
    fed = torch.ones(2)
    with rh.Session(graph) as sess:
        sess.run(v.assign(x), {x: fed})
        fed += 5
        assert sess.run(v).tolist() == [1, 1]


def test_gradients_of_functions_train_a_variable(graph):
    def train_step(w, x):
        w.requires_grad_()
        loss = ((w * x).sum() - 1) ** 2
        (gradient,) = torch.autograd.grad(loss, w)
        return w - 0.1 * gradient, loss

    w = rh.Variable(torch.zeros(2), name="w")
    new, loss = rh.call(train_step, w, np.ones(2, np.float32), num_outputs=2)
    step = w.assign(new)
    with rh.Session(graph) as sess:
        losses = [sess.run([loss, step])[0] for _ in range(10)]
        assert not losses[0].requires_grad
        assert losses[-1] < 1e-3 < losses[0]
        assert not sess.run(w).requires_grad


class Pair(NamedTuple):
    one: object
    other: object


def test_arrays_of_numpy_become_tensors(graph):
    seen = []
    x = rh.placeholder("x")
    given = x, np.ones(2), {"a": np.int32(3)}, Pair(np.ones(1), [2]), "text", 1
    call = rh.call(lambda *args: seen.extend(args), *given)
    with rh.Session(graph) as sess:
        sess.run(call, {x: np.zeros(2, np.float32)})
    fed, constant, nested, pair, text, number = seen
    assert isinstance(pair, Pair)
    assert isinstance(pair.one, torch.Tensor)
    assert (fed.dtype, constant.dtype, nested["a"].dtype) == (
        torch.float32,
        torch.float64,
        torch.int32,
    )
    assert (text, number) == ("text", 1)


def test_module_is_no_value_of_a_variable(graph):
    with pytest.raises(TypeError, match=r"rh\.torch\.graph"):
        rh.Variable(nn.Linear(1, 1), name="model")


@pytest.mark.parametrize(
    "values",
    [
        torch.linspace(-3, 3, 1001),
        torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([1, 2, 3]),
        torch.tensor([True, False]),
        torch.zeros(0),
    ],
    ids=["float32", "bfloat16", "int64", "bool", "empty"],
)
def test_histograms_are_those_of_numpy(graph, values):
    ours = graph.engine.histogram(values)
    numpy = rh.Graph("python").engine.histogram(values.float().numpy())
    np.testing.assert_array_equal(np.asarray(ours.counts), numpy.counts)
    assert [float(x) for x in ours[1:]] == pytest.approx([float(x) for x in numpy[1:]])
