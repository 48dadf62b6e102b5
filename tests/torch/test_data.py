"""Steps that draw their batches from data, such as a loader."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh
from runhooks.arrays import library_of


@pytest.fixture
def loader(training):
    return DataLoader(TensorDataset(training.images, training.labels), batch_size=4)


def test_each_run_draws_a_batch_until_all_epochs_are_over(training, loader):
    graph = rh.torch.graph(training.step, ["loss"], data=loader, epochs=2, **training.objects)
    seen = []
    with graph.as_default(), rh.MonitoredSession() as sess:
        while not sess.should_stop():
            seen.append(sess.run(["train_op", "images"])[1])
        # The data end before should_stop() is true: the block ends well.
    assert len(training.losses) == 8
    assert torch.equal(torch.cat(seen), torch.cat([training.images] * 2))


def test_elements_may_be_dicts(training):
    batches = [{"labels": training.labels, "images": training.images, "path": "a.png"}] * 3
    graph = rh.torch.graph(training.step, ["loss"], data=batches, **training.objects)
    with graph.as_default(), rh.MonitoredSession() as sess:
        while not sess.should_stop():
            sess.run("train_op")
    assert len(training.losses) == 3


@pytest.mark.parametrize("data", [None, [(1, 2)]])
@pytest.mark.parametrize("name", ["learning_rate", "global_gradient_norm"])
def test_a_parameter_must_not_have_the_name_of_a_value_of_an_object(training, name, data):
    with pytest.raises(ValueError, match=f"a parameter of fn must not be a name .* got '{name}'"):
        rh.torch.graph(eval(f"lambda x, {name}: None"), data=data, **training.objects)


def test_a_step_takes_the_objects_by_their_names(training, loader):
    by_name = []

    def step(model, images, *, optimizer, labels):
        by_name.append((model, optimizer))
        return training.step(images, labels)

    graph = rh.torch.graph(step, ["loss"], data=loader, **training.objects)
    with graph.as_default():
        rh.train.train("train_op")
    assert by_name == [(training.objects["model"], training.objects["optimizer"])] * 4


def test_a_step_that_is_fed_or_carries_takes_the_objects_too(training):
    def step(total, model, images, labels):
        assert model is training.objects["model"]
        return total + 1, training.step(images, labels)

    graph = rh.torch.graph(step, total=0, **training.objects)
    with graph.as_default(), rh.MonitoredSession() as sess:
        for _ in range(3):
            sess.run("train_op", {"images": training.images, "labels": training.labels})
        assert sess.run("total", hooks=False) == 3


def test_a_step_by_hand_takes_a_list_of_arguments(training, loader):
    with rh.torch.Graph(**training.objects).as_default():
        with pytest.raises(TypeError, match="args must be a list of what to call fn with"):
            rh.torch.step(training.step, args=rh.inputs(loader))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", ">c8", "?"])
def test_an_array_from_another_process_is_a_tensor_whatever_the_order_of_its_bytes(dtype):
    array = pickle.loads(pickle.dumps(np.array([[1, 0], [2, 3]], dtype)))
    tensor = library_of(torch.ones(1)).from_numpy(array)
    assert str(tensor.dtype) == f"torch.{array.dtype.name}"
    assert tensor.tolist() == array.tolist()
