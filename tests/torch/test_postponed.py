"""A hook starts no step: what it asks for that needs one is put off until the caller makes it."""

import logging

import pytest
import torch
from torch import nn

import runhooks as rh


class Accumulating:
    """A micro-step and an update, as gradient accumulation has them; ``made`` says what ran."""

    def __init__(self):
        torch.manual_seed(0)
        self.model, self.made = nn.Linear(2, 1), ""
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.graph = rh.torch.Graph(model=self.model, optimizer=self.optimizer)
        with self.graph.as_default():
            rh.torch.step(self.update, ["loss"])
            rh.torch.step(self.accumulate, name="accumulate", counts=False)

    def accumulate(self, x):
        self.made += "a"
        self.model(x).square().mean().backward()

    def update(self, x):
        self.made += "U"
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"loss": loss}

    def train(self, hooks, rounds=4, **arguments):
        with (
            self.graph.as_default(),
            rh.MonitoredTrainingSession(hooks=hooks, **arguments) as sess,
        ):
            for number in range(rounds):
                batch = {"x": torch.ones(4, 2) * number}
                sess.run("accumulate", batch)
                sess.run("train_op", batch)


class Asks(rh.SessionRunHook):
    def __init__(self, *names):
        self.names, self.got = names, []

    def before_run(self, run_context):
        return rh.SessionRunArgs(list(self.names))

    def after_run(self, run_context, run_values):
        self.got.append((run_context.session.global_step, len(run_values.results)))


HOOKS = {
    "nan": lambda: rh.NanTensorHook("loss"),
    "late nan": lambda: rh.NanTensorHook("loss", late=True),
    "nan of gradients": lambda: rh.NanTensorHook("gradients/model", late=True),
    "logging": lambda: rh.LoggingTensorHook(["loss"], every_n_iter=3),
    "progress": lambda: rh.ProgressHook(4, {"loss": "loss"}),
    "any": lambda: Asks("loss", "learning_rate"),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hook_trains_nothing(kind):
    alone, watched = Accumulating(), Accumulating()
    alone.train([])
    watched.train([HOOKS[kind]()])
    assert watched.made == alone.made == "aUaUaUaU"
    assert torch.equal(watched.model.weight, alone.model.weight)


def test_hook_that_was_put_off_gets_the_next_run_that_makes_the_step(caplog):
    caplog.set_level(logging.INFO, "runhooks")
    asks, it = Asks("loss"), Accumulating()
    it.train([asks, rh.LoggingTensorHook(["loss"], every_n_iter=4)])
    assert asks.got == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert len([line for line in caplog.messages if line.startswith("loss = ")]) == 2


def test_late_nan_is_found_between_runs_of_other_steps():
    it = Accumulating()
    with it.graph.as_default(), pytest.raises(rh.train.NanLossDuringTrainingError, match="step 1"):
        with rh.MonitoredSession(hooks=[rh.NanTensorHook("loss", late=True)]) as sess:
            sess.run("train_op", {"x": torch.full((4, 2), torch.nan)})
            for _ in range(3):
                sess.run("accumulate", {"x": torch.ones(4, 2)})
            sess.run("train_op", {"x": torch.ones(4, 2)})


def test_hooks_named_in_a_run_are_put_off_too():
    it, asks = Accumulating(), Asks("loss")
    batch = {"x": torch.ones(4, 2)}
    with it.graph.as_default(), rh.MonitoredSession() as sess:
        sess.run("accumulate", batch, hooks=[asks])
        sess.run("train_op", batch, hooks=[asks])
    assert (it.made, asks.got) == ("aU", [(1, 1)])


def test_gradients_are_put_off_in_runs_that_make_no_step():
    it, asks = Accumulating(), Asks("gradients/model/weight")
    batch = {"x": torch.ones(4, 2)}
    with it.graph.as_default(), rh.MonitoredSession(hooks=[asks]) as sess:
        sess.run("model/weight")
        sess.run("train_op", batch)
    assert asks.got == [(1, 1)]


def test_what_needs_two_steps_waits_for_one_run_of_both_and_says_so(caplog):
    it, asks = Accumulating(), Asks("loss", "other")
    with it.graph.as_default():
        rh.torch.step(lambda: {"other": 1}, ["other"], name="second", counts=False)
        with rh.MonitoredSession(hooks=[asks]) as sess:
            for _ in range(2):
                sess.run("train_op", {"x": torch.ones(4, 2)})
            assert asks.got == []
            sess.run(["train_op", "second"], {"x": torch.ones(4, 2)})
    assert asks.got == [(3, 2)]
    (said,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "the hook Asks" in said
    assert "['second', 'train_op']" in said


def test_output_that_makes_an_unnamed_step_is_warned_of_once(training, caplog):
    graph = training.graph()
    with graph.as_default(), rh.MonitoredSession() as sess:
        group = ["train_op", "loss"]
        sess.run(group, training.batch)
        sess.run("model/0.weight", training.batch, hooks=False)
        assert caplog.messages == []
        sess.run("loss", training.batch, hooks=False)
        sess.run(["loss", "learning_rate"], training.batch, hooks=False)
    assert len(training.losses) == 3
    (said,) = caplog.messages
    assert "'loss'" in said
    assert "the step 'train_op'" in said


def test_group_of_a_step_names_it(training, caplog):
    graph = training.graph()
    with graph.as_default():
        both = rh.group(graph["train_op"], name="both")
    with rh.Session(graph) as sess:
        sess.run([both, "loss"], training.batch)
    assert caplog.messages == []
