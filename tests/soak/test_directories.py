"""Directories that several processes want, or that vanish, again and again."""

import os
import random
import signal
import subprocess
import sys

import pytest

import runhooks as rh

pytestmark = pytest.mark.soak

ROUNDS = 20

PROGRAM = """
import sys, time
import runhooks as rh

with rh.Graph().as_default():
    op = rh.train.get_or_create_global_step().assign_add(1)
    try:
        session = rh.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_steps=1)
    except RuntimeError as error:
        print("refused" if "another process" in str(error) else error, flush=True)
        sys.exit(0)
    with session:
        session.run(op)
        print(session.global_step, flush=True)
        time.sleep(1000)
"""


def test_of_two_chiefs_one_trains_and_a_kill_lets_the_other(tmp_path):
    for round_number in range(1, ROUNDS + 1):
        both = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        said = sorted(process.stdout.readline().strip() for process in both)
        for process in both:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        assert said == [str(round_number), "refused"]
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / f"model.ckpt-{ROUNDS}")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_directory_that_vanishes_and_a_working_directory_that_changes(
    tmp_path, monkeypatch, seed
):
    generator = random.Random(seed)
    run, away = tmp_path / "run", tmp_path / "away"
    monkeypatch.chdir(tmp_path)

    class Faults(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if generator.random() < 0.2:
                elsewhere = tmp_path / str(run_context.session.global_step)
                elsewhere.mkdir(exist_ok=True)
                os.chdir(elsewhere)
                if generator.random() < 0.5 and run.exists():
                    run.rename(away)
                raise rh.errors.AbortedError("lost")

    class Returns(rh.RecoveryPolicy):
        def wait_secs(self, failure):
            if away.exists() and generator.random() < 0.5:
                away.rename(run)
            return 0.0

    with rh.Graph().as_default():
        total = rh.Variable(0, name="total")
        step = rh.train.get_or_create_global_step()
        op = rh.group(total.assign_add(1), step.assign_add(1))
        with rh.MonitoredTrainingSession(
            checkpoint_dir="run",
            save_checkpoint_steps=1,
            hooks=[Faults(), rh.StopAtStepHook(last_step=30)],
            recovery=Returns(failures=200, first_wait_secs=0),
        ) as session:
            while not session.should_stop():
                session.run(op)
            assert session.global_step == 30
            assert session.run(total, hooks=False) == 30
    assert rh.latest_checkpoint(run) == str(run / "model.ckpt-30")
