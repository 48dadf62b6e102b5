"""``session.iteration()``: several runs of the loop, a whole or not at all."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step

RUNS = 4

#: A loop whose iterations draw once, and train on that in four runs; it can kill itself.
PROGRAM = """
import os, signal, sys
import numpy as np
import runhooks as rh

folder, kill_at, cadence = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def train_step(weights, batch):
    return weights * 0.9 + batch, {"loss": (weights * batch).sum()}

def draw(step):
    while True:
        yield np.random.default_rng(step // 4).normal(size=(4, 3))
        step += 4

graph = rh.graph(train_step, weights=np.zeros(3))
with graph.as_default():
    rollouts = rh.inputs(draw, name="rollout")
    hooks = [rh.StopAtStepHook(last_step=18)]
    with rh.MonitoredTrainingSession(
        checkpoint_dir=folder, save_checkpoint_steps=cadence, hooks=hooks
    ) as session:
        while not session.should_stop():
            with session.iteration():
                for batch in session.run(rollouts, hooks=False):
                    session.run("train_op", {"batch": batch})
                    if session.global_step == kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)
        print(session.global_step, session.run("weights", hooks=False).tobytes().hex())
"""


def run_program(folder, kill_at=0, cadence=3):
    command = [sys.executable, "-c", PROGRAM, str(folder), str(kill_at), str(cadence)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert result.returncode == (-signal.SIGKILL if kill_at else 0), result.stderr
    return result.stdout


def test_a_run_killed_in_mid_iteration_is_resumed_to_the_bits_of_an_undisturbed_one(tmp_path):
    undisturbed = run_program(tmp_path / "undisturbed")
    assert undisturbed.startswith("20 ")  # the iteration of step 18 is ended
    for kill_at in (7, 10, 17):
        folder = tmp_path / str(kill_at)
        assert run_program(folder, kill_at) == ""
        assert checkpoint_step(rh.latest_checkpoint(folder)) % RUNS == 0
        assert run_program(folder) == undisturbed


@contextlib.contextmanager
def training(*hooks, **arguments):
    """A session that trains; ``train()`` makes a run."""
    arguments = {"save_summaries_steps": None, "log_step_count_steps": None, **arguments}
    graph = rh.graph(lambda total, x: (total + x, {"loss": total + x}), total=0.0)
    with graph.as_default():
        with rh.MonitoredTrainingSession(hooks=hooks, **arguments) as session:
            yield session


def train(session, runs=RUNS):
    for _ in range(runs):
        session.run("train_op", {"x": 1.0})


class Saves(rh.CheckpointSaverListener):
    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        self.steps.append(global_step_value)


@pytest.mark.parametrize(
    ("cadence", "steps"), [(1, [0, 4, 8, 12]), (3, [0, 4, 8, 12]), (5, [0, 8, 12])]
)
def test_saves_wait_for_the_end_of_the_iteration(cadence, steps, tmp_path):
    listener = Saves()
    trigger = rh.Trigger(every_steps=cadence)
    saver = rh.CheckpointSaverHook(tmp_path, trigger=trigger, listeners=[listener])
    with training(saver) as session:
        for _ in range(3):
            with session.iteration():
                for _ in range(RUNS):
                    before = list(listener.steps)
                    train(session, 1)
                    assert listener.steps == before
    assert [it for it in listener.steps if it] == steps[1:]


def test_evaluations_wait_for_the_end_of_the_iteration():
    evaluated = []
    evaluation = rh.EvaluationHook(
        {"total": "total"}, every_n_steps=3, data=lambda step: evaluated.append(step) or [{}]
    )
    with training(evaluation) as session:
        for _ in range(3):
            with session.iteration():
                train(session)
    assert sorted(evaluation.metrics_by_step()) == [4, 8, 12]
    assert [float(it["total"]) for it in evaluation.metrics_by_step().values()] == [4, 8, 12]


def test_hooks_that_ask_for_values_act_in_the_runs_of_the_iteration():
    found = []
    hook = rh.CallHook(
        lambda at, loss: found.append((int(at) + 1, float(loss))),
        ["global_step", "loss"],
        every_n_steps=3,
    )
    with training(hook) as session:
        for _ in range(2):
            with session.iteration():
                train(session)
    assert found == [(3, 3.0), (6, 6.0)]


def test_a_hook_that_stops_at_a_step_lets_the_iteration_end(tmp_path):
    with training(rh.StopAtStepHook(last_step=5), checkpoint_dir=tmp_path) as session:
        while not session.should_stop():
            with session.iteration():
                train(session, 2)
                assert not session.should_stop()
                train(session, 2)
    assert session.global_step == 8
    assert session.stop_reason == "StopAtStepHook"
    assert checkpoint_step(rh.latest_checkpoint(tmp_path)) == 8


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("reason", ["enough", "SIGTERM"])
def test_requests_to_stop_let_the_iteration_end(reason, asks, tmp_path):
    with training(checkpoint_dir=tmp_path) as session:
        for _ in range(5):
            if asks and session.should_stop():
                break
            with session.iteration():
                train(session, 1)
                if reason == "SIGTERM":
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    session.request_stop(reason)
                train(session, 3)
            if not asks and reason == "enough":
                break
    assert session.stop_reason == reason
    assert checkpoint_step(rh.latest_checkpoint(tmp_path)) % RUNS == 0
    if asks:
        assert session.global_step == 4


def test_an_iteration_inside_another_is_refused():
    with training() as session:
        with session.iteration():
            with pytest.raises(RuntimeError, match="inside another iteration"):
                with session.iteration():
                    pytest.fail("it was entered")
            train(session)
        with session.iteration():
            train(session)
    assert session.global_step == 8


def test_an_iteration_after_close_is_refused():
    with training() as session:
        train(session)
    with pytest.raises(RuntimeError, match="iteration was called on a closed session"):
        with session.iteration():
            pytest.fail("it was entered")


def test_an_error_inside_is_raised_and_nothing_of_the_iteration_is_saved(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with training(checkpoint_dir=tmp_path, save_checkpoint_steps=1) as session:
            with session.iteration():
                train(session)
            with session.iteration():
                train(session, 2)
                raise ZeroDivisionError
    assert checkpoint_step(rh.latest_checkpoint(tmp_path)) == 4


def test_the_loop_may_go_on_after_an_error_inside():
    with training() as session:
        with contextlib.suppress(ZeroDivisionError), session.iteration():
            train(session, 2)
            raise ZeroDivisionError
        with session.iteration():
            train(session, 2)
        assert not session.should_stop()
    assert session.global_step == 4
