"""What a step of PyTorch takes and returns anew: hidden states, rates, counts."""

import gc
import os
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh

STEPS = 7  # of an epoch


class Language:
    """A recurrent model of sequences, which carries its hidden state, a rate and a total."""

    def __init__(self):
        torch.manual_seed(3)
        self.model = nn.ModuleDict({"lstm": nn.LSTM(3, 4), "out": nn.Linear(4, 3)})
        self.model["drop"] = nn.Dropout(0.2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.hidden = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
        self.data = [torch.randn(5, 2, 3) for _ in range(STEPS)]

    def step(self, x, hidden, rate, total):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        out, hidden = self.model["lstm"](x, hidden)
        loss = (self.model["out"](self.model["drop"](out)) - x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return hidden, rate * 0.95, total + loss.item(), {"loss": loss}

    def graph(self, epochs=2):
        return rh.torch.graph(
            self.step,
            ["loss"],
            data=self.data,
            epochs=epochs,
            model=self.model,
            optimizer=self.optimizer,
            hidden=self.hidden,
            rate=0.3,
            total=np.zeros((), np.float64),
        )


def as_bytes(model, *carried):
    parts = [*model.state_dict().values(), *carried]
    return [np.asarray(it).tobytes() for it in parts]


def plainly():
    """What comes of the plain loop, which detaches its hidden state."""
    it = Language()
    hidden, rate, total = it.hidden, 0.3, 0.0
    for _ in range(2):
        for x in it.data:
            (h, c), rate, total, _ = it.step(x, hidden, rate, total)
            hidden = h.detach(), c.detach()
    return as_bytes(it.model, *hidden, rate, total)


class Killer(rh.SessionRunHook):
    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if run_context.next_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder=None, kill_at=None, last=1000):
    it = Language()
    hooks = [Killer(kill_at), rh.StopAtStepHook(last_step=last)]
    with it.graph().as_default():
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=2
        ) as sess:
            while not sess.should_stop():
                sess.run("train_op")
            hidden, rate, total = sess.run(["hidden", "rate", "total"], hooks=False)
    return as_bytes(it.model, *hidden, rate, total)


def test_it_computes_what_the_plain_loop_does():
    assert train() == plainly()


@pytest.mark.parametrize("stops", [[3], [7], [2, 9]], ids=str)
def test_a_resumed_run_ends_with_the_same_bits(stops, tmp_path):
    for last in stops:
        train(tmp_path, last=last)
    assert train(tmp_path) == plainly()


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from tests.torch import test_carried
test_carried.train(sys.argv[2], kill_at=int(sys.argv[3]))
"""


def test_killed_in_mid_epoch_and_resumed_it_ends_with_the_same_bits(torch_launcher, tmp_path):
    here = str(Path(__file__).parents[2])
    run = tmp_path / "run"
    for kill_at in (4, 10):
        status, said = torch_launcher.run(tmp_path, KILLED, here, run, kill_at)
        assert status == -signal.SIGKILL, said
    assert train(run) == plainly()


# --- What it is: the kinds, the names, the memory


def test_each_comes_in_the_kind_it_was_given_in():
    given = {
        "number": 0.1,
        "count": 3,
        "flag": True,
        "array": np.arange(3.0),
        "scalar": np.float32(2),
        "tensor": torch.ones(2),
        "nest": {"pair": (torch.zeros(1), 5), "rows": [np.ones(2, np.int32)]},
    }
    seen = []

    def step(number, count, flag, array, scalar, tensor, nest):
        seen.append([number, count, flag, array, scalar, tensor, nest])
        return number, count, flag, array, scalar, tensor, nest

    model = nn.Linear(1, 1)
    with rh.torch.graph(step, model=model, **given).as_default(), rh.MonitoredSession() as sess:
        for _ in range(2):
            sess.run("train_op")
    for number, count, flag, array, scalar, tensor, nest in seen:
        kinds = [type(it) for it in (number, count, flag, array, scalar, tensor)]
        assert kinds == [float, int, bool, np.ndarray, np.float32, torch.Tensor]
        assert (number, count, flag, array.tolist(), float(scalar)) == (0.1, 3, True, [0, 1, 2], 2)
        assert type(nest["pair"]) is tuple
        assert type(nest["pair"][1]) is int
        assert nest["rows"][0].dtype == np.int32


def test_values_are_fetched_by_name_as_before_the_run():
    it = Language()
    with it.graph().as_default(), rh.MonitoredSession() as sess:
        first = sess.run({"step": "train_op", "hidden": "hidden", "part": "hidden/1"})
        second = sess.run({"loss": "loss", "hidden": "hidden", "rate": "rate"})
        with pytest.raises(ValueError, match="'hidden/2'.*did you mean 'hidden/"):
            sess.run("hidden/2")
    assert torch.equal(first["part"], torch.zeros(1, 2, 4))
    assert not torch.equal(second["hidden"][0], first["hidden"][0])
    assert float(second["rate"]) == 0.3 * 0.95


def test_fetching_an_output_makes_the_whole_step():
    it = Language()
    with it.graph().as_default(), rh.MonitoredSession() as sess:
        for _ in range(3):
            sess.run("loss")
        assert sess.global_step == 3
        assert float(sess.run("rate", hooks=False)) == 0.3 * 0.95 * 0.95 * 0.95


def test_what_computed_it_is_let_go():
    alive = []

    def step(hidden):
        made = hidden * weight
        alive.append(weakref.ref(made))
        return made + 1

    weight = nn.Parameter(torch.ones(3))
    model = nn.Module()
    model.weight = weight
    graph = rh.torch.graph(step, model=model, hidden=torch.zeros(3))
    with graph.as_default(), rh.MonitoredSession() as sess:
        for _ in range(3):
            sess.run("train_op")
        gc.collect()
        assert [it() for it in alive] == [None] * 3
        assert sess.run("hidden").tolist() == [3.0] * 3
        assert not sess.run("hidden").requires_grad


# --- How a step returns it


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (lambda h, n, loss: (h, n, {"loss": loss}), ["loss"]),
        (lambda h, n, loss: (h, n, loss), ["loss"]),
        (lambda h, n, loss: {"loss": loss, "n": n, "h": h}, ["loss"]),
        (lambda h, n, loss: (loss, (n, h)), ["loss", ("n", "h")]),
    ],
    ids=["first", "unnamed", "by name", "outputs"],
)
def test_the_rule_of_results_is_that_of_all_graphs(result, outputs):
    def step(h, n, x):
        return result(h + x, n + 1, 10 * x)

    model = nn.Linear(1, 1)
    graph = rh.torch.graph(step, outputs, model=model, h=torch.zeros(2), n=0, data=[1.0, 2.0])
    with graph.as_default(), rh.MonitoredSession() as sess:
        assert [float(sess.run(["train_op", "loss"])[1]) for _ in range(2)] == [10.0, 20.0]
        assert sess.run("h", hooks=False).tolist() == [3.0, 3.0]
        assert int(sess.run("n", hooks=False)) == 2


def test_an_error_says_which_outputs_to_write():
    def step(h, x):
        return x, h + x

    model = nn.Linear(1, 1)
    graph = rh.torch.graph(step, model=model, h=torch.zeros(2), data=[torch.ones(())])
    with graph.as_default(), rh.MonitoredSession() as sess:
        with pytest.raises(ValueError, match=r"outputs=\['loss', 'h'\]"):
            sess.run("train_op")


def test_another_shape_is_refused_and_nothing_is_stored():
    sizes = iter([2, 3])
    model = nn.Linear(1, 1)
    graph = rh.torch.graph(lambda h: torch.ones(next(sizes)), model=model, h=torch.zeros(2))
    with graph.as_default(), rh.MonitoredSession() as sess:
        sess.run("train_op")
        with pytest.raises(ValueError, match="'h'"):
            sess.run("train_op")
        assert sess.global_step == 1


def test_a_value_that_no_parameter_takes_is_refused(training):
    with pytest.raises(
        TypeError, match=r"'hiden' is not a parameter of lambda\(hidden\).*'hidden'"
    ):
        rh.torch.graph(lambda hidden: hidden, hiden=torch.zeros(1), model=training.model)


def test_a_graph_of_several_steps_takes_no_values(training):
    with pytest.raises(TypeError, match=r"rate is a value.*rh\.torch\.graph.*rh\.Variable"):
        rh.torch.Graph(**training.objects, rate=0.1)
