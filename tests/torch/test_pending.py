"""Gradients that micro-steps have accumulated, random generators and loaders across a restart."""

import pytest
import torch
from torch import nn

import runhooks as rh
from runhooks.checkpoint import read_checkpoint


class Flat:
    """A flat loop: four micro-steps, then an update, each a run."""

    def __init__(self, sparse=False):
        torch.manual_seed(0)
        self.model = nn.Embedding(6, 2, sparse=sparse)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.graph = rh.torch.Graph(model=self.model, optimizer=self.optimizer)
        with self.graph.as_default():
            rh.torch.step(self.update)
            rh.torch.step(self.accumulate, name="accumulate", counts=False)

    def accumulate(self, number):
        (self.model(torch.tensor([number % 6])).square().sum() / 4).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def runs(self, sess, numbers):
        for number in numbers:
            sess.run("accumulate", {"number": number})
            if number % 4 == 3:
                sess.run("train_op")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("stop", [4, 5, 10])
def test_stop_in_the_middle_of_an_accumulation_loses_nothing(stop, sparse, tmp_path):
    undisturbed, stopped, resumed = Flat(sparse), Flat(sparse), Flat(sparse)
    with rh.Session(undisturbed.graph) as sess:
        undisturbed.runs(sess, range(16))
    with rh.Session(stopped.graph) as sess:
        stopped.runs(sess, range(stop))
        path = rh.Saver().save(sess, tmp_path / "model.ckpt")
    with rh.Session(resumed.graph) as sess:
        rh.Saver().restore(sess, path)
        resumed.runs(sess, range(stop, 16))
    assert torch.equal(resumed.model.weight, undisturbed.model.weight)


def test_gradients_are_saved_only_while_some_are_pending(training, tmp_path):
    flat = Flat()
    with rh.Session(flat.graph) as sess:
        flat.runs(sess, range(4))
        rh.Saver().save(sess, tmp_path / "applied")
        flat.runs(sess, range(1))
        rh.Saver().save(sess, tmp_path / "pending")
        before = flat.model.weight.grad.clone()
        rh.Saver().restore(sess, tmp_path / "applied")
        assert flat.model.weight.grad is None
        rh.Saver().restore(sess, tmp_path / "pending")
        assert torch.equal(flat.model.weight.grad, before)
    assert "gradients/model/weight" not in read_checkpoint(tmp_path / "applied").arrays
    assert "gradients/model/weight" in read_checkpoint(tmp_path / "pending").arrays
    # A step that always counts leaves its gradients to nobody.
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        rh.Saver().save(sess, tmp_path / "counting")
    arrays = read_checkpoint(tmp_path / "counting").arrays
    assert not [name for name in arrays if name.startswith("gradients")]


def test_graph_without_micro_steps_takes_such_a_checkpoint(tmp_path):
    flat = Flat()
    with rh.Session(flat.graph) as sess:
        flat.runs(sess, range(1))
        rh.Saver().save(sess, tmp_path / "pending")
    graph = rh.torch.graph(lambda: None, model=flat.model, optimizer=flat.optimizer)
    with rh.Session(graph) as sess:
        rh.Saver().restore(sess, tmp_path / "pending")
