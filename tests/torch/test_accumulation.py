"""Gradient accumulation, of runs that do not count and one that does: hooks act in the latter."""

import logging
import signal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh
from runhooks.testing import FakeClock, read_events

PARTS = 4


class Weights(rh.SessionRunHook):
    """Notes the weights of every n-th step, as the page on hooks writes it."""

    def __init__(self, every_steps):
        self.timer = rh.Timer(rh.Trigger(every_steps=every_steps))
        self.seen = []

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step)

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        return rh.SessionRunArgs("model/weight")

    def after_run(self, run_context, run_values):
        self.timer.update_last_triggered_step(run_context.next_step)
        self.seen.append((run_context.next_step, run_context.session.global_step))


class EveryRun(rh.SessionRunHook):
    """Notes in every run the step that it is said to lead to, and the one it leads to."""

    def __init__(self):
        self.seen = []

    def before_run(self, run_context):
        self.told = run_context.next_step

    def after_run(self, run_context, run_values):
        self.seen.append((self.told, run_context.session.global_step))


class Training:
    """A linear model and a shuffled loader; each run calls ``interrupt`` with its number."""

    def __init__(self, interrupt=lambda number: None):
        torch.manual_seed(0)
        self.model = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        x = torch.randn(64, 2)
        self.loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 4, shuffle=True)
        self.interrupt = interrupt
        self.runs = 0

    def accumulate(self, x, y):
        self.runs += 1
        self.interrupt(self.runs)
        loss = nn.functional.mse_loss(self.model(x), y) / PARTS
        loss.backward()
        return {"loss": loss}

    def update(self, x, y):
        outputs = self.accumulate(x, y)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return outputs

    def graph(self):
        graph = rh.torch.Graph(model=self.model, optimizer=self.optimizer)
        with graph.as_default():
            batch = rh.inputs(self.loader, 2, epochs=None)
            rh.torch.step(self.accumulate, name="accumulate", counts=False, args=batch)
            rh.torch.step(self.update, ["loss"], args=batch)
        return graph

    def train(self, directory, hooks, **options):
        with (
            self.graph().as_default(),
            rh.MonitoredTrainingSession(
                checkpoint_dir=directory, hooks=hooks, **options
            ) as session,
        ):
            number = 0
            while not session.should_stop():
                number += 1
                session.run("accumulate" if number % PARTS else "train_op")
        return session


def test_hook_that_is_due_by_steps_acts_once_in_the_run_that_counts(tmp_path):
    weights, runs = Weights(5), EveryRun()
    Training().train(tmp_path, [weights, runs, rh.StopAtStepHook(last_step=12)])
    assert weights.seen == [(5, 5), (10, 10)]
    assert runs.seen == [(step, step) for at in range(12) for step in (at, at, at, at + 1)]


def test_summaries_are_written_once_at_their_steps(tmp_path):
    training = Training()
    graph = training.graph()
    with graph.as_default():
        every_five = rh.summary.scalar("by_trigger", "model/bias", collections=[])
        rh.summary.scalar("by_steps", "model/bias")
        hooks = [
            rh.SummarySaverHook(
                trigger=rh.Trigger(every_steps=5), output_dir=tmp_path, summary_op=every_five
            ),
            rh.StopAtStepHook(last_step=12),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=hooks, save_summaries_steps=5
        ) as session:
            while not session.should_stop():
                for _ in range(PARTS - 1):
                    session.run("accumulate")
                session.run("train_op")
    steps = {
        tag: [event.step for event in read_events(tmp_path) if event.tag == tag]
        for tag in ("by_trigger", "by_steps")
    }
    assert steps == {"by_trigger": [5, 10], "by_steps": [1, 6, 11]}


def test_runs_that_do_not_count_are_not_taken_for_a_step_that_was_forgotten(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="runhooks"):
        Training().train(
            tmp_path, [rh.StopAtStepHook(last_step=12)], log_step_count_steps=PARTS - 1
        )
    assert caplog.messages == []


def stop_by_signal(number):
    return lambda at, run, clock: signal.raise_signal(number) if at == run else None


def stop_by_time(at, run, clock):
    clock.advance(20 if at == 21 else 0)


@pytest.mark.parametrize("run", [21, 22, 24])
@pytest.mark.parametrize(
    "stop",
    [stop_by_signal(signal.SIGTERM), stop_by_signal(signal.SIGINT), stop_by_time],
    ids=["SIGTERM", "SIGINT", "time limit"],
)
def test_loop_is_stopped_after_an_update_and_loses_nothing(stop, run, tmp_path):
    expected, resumed = Training(), Training()
    expected.train(tmp_path / "undisturbed", [rh.StopAtStepHook(last_step=12)])
    with FakeClock() as clock:
        training = Training(lambda at: stop(at, run, clock))
        session = training.train(tmp_path / "stopped", [rh.TimeLimitHook(secs=10)])
    assert (session.global_step, training.runs) == (6, 24)
    resumed.train(tmp_path / "stopped", [rh.StopAtStepHook(last_step=12)])
    assert resumed.model.weight.tolist() == expected.model.weight.tolist()


def test_checkpoints_by_seconds_are_saved_after_an_update(tmp_path):
    with FakeClock() as clock:
        training = Training(lambda at: clock.advance(1))
        training.train(tmp_path, [rh.StopAtStepHook(last_step=6)], save_checkpoint_secs=6)
    for step in (2, 4, 6):
        assert "gradients" not in rh.load(tmp_path, step=step)


def test_loop_that_never_asks_ends_after_an_update(tmp_path):
    training = Training(lambda at: signal.raise_signal(signal.SIGTERM) if at == 2 else None)
    with (
        training.graph().as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session,
    ):
        for number in range(1, 100):
            session.run("accumulate" if number % PARTS else "train_op")
    assert training.runs % PARTS == 0
    assert session.global_step == training.runs // PARTS < 3


def test_request_to_stop_is_heeded_at_once(tmp_path):
    training = Training()
    with (
        training.graph().as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session,
    ):
        for fetches in ("accumulate", "train_op", "accumulate"):
            session.run(fetches)
        session.request_stop()
        assert session.should_stop()
    assert "gradients" in rh.load(tmp_path)


def test_a_look_at_a_weight_between_two_parts_of_a_step_saves_nothing(tmp_path):
    """What is saved there holds gradients of a step that a resumed loop begins anew."""
    model = nn.Linear(2, 1)
    graph = rh.torch.Graph(model=model)
    with graph.as_default(), FakeClock() as clock:
        rh.torch.step(lambda: None, name="accumulate", counts=False)
        rh.torch.step(lambda: None)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_secs=10
        ) as session:
            session.run("train_op")
            session.run("accumulate")
            clock.advance(60)
            before = rh.train.latest_checkpoint(tmp_path)
            session.run("model/weight")
            assert rh.train.latest_checkpoint(tmp_path) == before
            session.run("train_op")
            assert rh.train.latest_checkpoint(tmp_path).endswith("-2")
