"""``device=`` and ``steps_per_epoch=`` of graphs of PyTorch."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Batch:
    pair: Pair
    name: str


class Own:
    """A batch of a class that moves itself."""

    def __init__(self, tensor):
        self.tensor = tensor

    def to(self, device):
        return Own(self.tensor.to(device))


def kinds(*tensors):
    return {it.device.type for it in tensors}


@pytest.mark.parametrize("is_fed", [False, True])
@pytest.mark.parametrize(
    ("batch", "tensors"),
    [
        (torch.ones(2), lambda it: [it]),
        ({"a": torch.ones(2), "b": [torch.ones(1)]}, lambda it: [it["a"], *it["b"]]),
        (((torch.ones(2), torch.ones(1)), 5), lambda it: [*it[0]]),
        (Pair(torch.ones(2), torch.ones(1)), lambda it: [it.x, it.y]),
        (Batch(Pair(torch.ones(2), torch.ones(1)), "a.png"), lambda it: [it.pair.x, it.pair.y]),
        (Own(torch.ones(2)), lambda it: [it.tensor]),
    ],
    ids=["tensor", "dict", "tuple", "named tuple", "dataclass", "own"],
)
def test_batches_are_moved_however_they_are_nested(batch, tensors, is_fed):
    seen = []
    data = None if is_fed else [{"batch": batch}]
    graph = rh.torch.graph(
        lambda batch: seen.append(batch), data=data, device="meta", model=nn.Linear(1, 1)
    )
    with graph.as_default(), rh.MonitoredSession() as sess:
        sess.run("train_op", {"batch": batch} if is_fed else None)
    (found,) = seen
    assert type(found) is type(batch)
    assert kinds(*tensors(found)) == {"meta"}
    assert kinds(*tensors(batch)) == {"cpu"}


def test_what_is_no_tensor_stays_as_it_is():
    seen = []
    array = np.ones(2)
    graph = rh.torch.graph(
        lambda *, image, path, number: seen.append((image, path, number)),
        data=[{"image": array, "path": "a.png", "number": 3}],
        device="meta",
        model=nn.Linear(1, 1),
    )
    with graph.as_default(), rh.MonitoredSession() as sess:
        sess.run("train_op")
    assert seen[0][0] is array
    assert seen[0][1:] == ("a.png", 3)


def test_modules_are_moved_and_inputs_of_the_graph_too():
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    graph = rh.torch.Graph(device="meta", model=model)
    assert kinds(*model.parameters(), *model.buffers()) == {"meta"}
    seen = []
    with graph.as_default():
        batch = rh.inputs([torch.ones(2)])
        rh.torch.step(seen.append, args=[batch])
        with rh.MonitoredSession() as sess:
            fetched = sess.run(["train_op", batch])[1]
    assert kinds(*seen, fetched) == {"meta"}


def train(training, device, **given):
    batches = [(training.images + i, training.labels) for i in range(4)]
    graph = rh.torch.graph(
        training.step, ["loss"], data=batches, device=device, **training.objects, **given
    )
    with graph.as_default(), rh.MonitoredSession() as sess:
        while not sess.should_stop():
            sess.run("train_op")
    return [it.detach().cpu() for it in training.model.parameters()]


def plain(training, device):
    training.model.to(device)
    for i in range(4):
        training.step((training.images + i).to(device), training.labels.to(device))
    return [it.detach().cpu() for it in training.model.parameters()]


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_it_computes_what_the_plain_loop_does(make_training, device):
    ours, theirs = train(make_training(), device), plain(make_training(), device)
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_it_computes_what_the_plain_loop_does_and_resumes(make_training, tmp_path):
    theirs = plain(make_training(), "cuda")
    ours = train(make_training(), "cuda")
    assert all(map(torch.equal, ours, theirs))
    for last in (2, 4):
        it = make_training()
        batches = [(it.images + i, it.labels) for i in range(4)]
        graph = rh.torch.graph(it.step, ["loss"], data=batches, device="cuda", **it.objects)
        with graph.as_default():
            rh.train.train("train_op", tmp_path, max_steps=last)
        states = it.optimizer.state.values()
        assert kinds(*(state["exp_avg"] for state in states)) == {"cuda"}
    assert all(map(torch.equal, [p.detach().cpu() for p in it.model.parameters()], ours))


def test_carried_tensors_are_put_there_and_numbers_are_not():
    seen = []

    def step(hidden, rate, key):
        seen.append((hidden.device.type, type(rate), key.device.type))
        return hidden, rate

    graph = rh.torch.graph(
        step, device="cpu", model=nn.Linear(1, 1), hidden=torch.zeros(1), rate=0.1
    )
    with graph.as_default(), rh.MonitoredSession() as sess:
        sess.run("train_op")
    assert seen == [("cpu", float, "cpu")]


@pytest.mark.parametrize("device", ["gpu", 1.5])
def test_a_device_that_torch_does_not_know_is_refused(training, device):
    with pytest.raises(ValueError, match="device must be a device of torch, such as 'cuda'"):
        rh.torch.Graph(device=device, **training.objects)


# --- steps_per_epoch=


def test_epochs_by_steps_for_a_loop_that_feeds(training):
    ends = []
    graph = rh.torch.graph(training.step, ["loss"], steps_per_epoch=2, **training.objects)
    hook = rh.CallHook(lambda *values: ends.append(values), ["epoch", "global_step"], 1)
    with graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(5):
            sess.run("train_op", training.batch)
        assert sess.epoch == 3
    assert ends == [(1, 1), (2, 3)]


def test_epochs_by_steps_in_a_graph_of_several_steps(training):
    ends = []
    with rh.torch.Graph(steps_per_epoch=3, **training.objects).as_default():
        rh.torch.step(training.step, ["loss"])
        hook = rh.CallHook(lambda: ends.append(len(training.losses)), every_n_epochs=1)
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(7):
                sess.run("train_op", training.batch)
    assert ends == [3, 6]


def test_a_scheduler_is_stepped_by_epochs_exactly_in_a_resumed_run(make_training, tmp_path):
    def run(folder, stops):
        for last in stops:
            it = make_training()

            def step(images, labels, it=it):
                it.optimizer.zero_grad()
                nn.functional.cross_entropy(it.model(images), labels).backward()
                it.optimizer.step()

            batches = [(it.images, it.labels)] * 3
            graph = rh.torch.graph(step, data=batches, epochs=4, **it.objects)
            with graph.as_default():
                hooks = [rh.CallHook(it.scheduler.step, every_n_epochs=1)]
                rh.train.train("train_op", folder, hooks, max_steps=last)
        return [p.detach().numpy().tobytes() for p in it.model.parameters()], it.optimizer

    once, optimizer = run(tmp_path / "once", [12])
    assert optimizer.param_groups[0]["lr"] == 0.1 / 4  # halved every second epoch
    again, _ = run(tmp_path / "again", [2, 3, 7, 12])
    assert again == once


@pytest.mark.parametrize("steps", [0, -1])
def test_wrong_steps_per_epoch_are_refused(training, steps):
    with pytest.raises(ValueError, match="steps_per_epoch must be above 0"):
        rh.torch.graph(training.step, steps_per_epoch=steps, **training.objects)
