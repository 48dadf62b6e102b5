"""The digits examples, killed again and again, end where an undisturbed run ends."""

import math
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLES = Path(__file__).parents[1] / "examples"
LAST_STEP = 800
SAVE_STEPS = 20
SEED = 20240229


@pytest.fixture(scope="module", params=["digits_jax.py", "digits_torch.py"])
def example(request):
    """The path of an example; a test that takes it runs once on each."""
    return EXAMPLES / request.param


@contextmanager
def running(example, run_dir):
    """The example, killed with SIGKILL where the block ends if it has not finished."""
    limits = ["--steps", str(LAST_STEP), "--save-steps", str(SAVE_STEPS)]
    command = [sys.executable, example, "--dir", run_dir, *limits]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process):
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def run(example, run_dir):
    with running(example, run_dir) as process:
        return finish(process)


def stay(process, seconds):
    """Wait so long for it, in which it must not end."""
    with pytest.raises(subprocess.TimeoutExpired):
        pytest.fail(f"exit {process.wait(seconds)}: {process.stdout.read()}")


def last_saved(run_dir):
    names = [path.name for path in run_dir.glob("model.ckpt-*")]
    return max((int(name.removeprefix("model.ckpt-")) for name in names), default=-1)


def wait_for_checkpoint(process, run_dir, seconds=math.inf):
    """Wait for one beyond those that are there and that of step 0, but no longer than that."""
    before, end = max(last_saved(run_dir), 0), time.monotonic() + seconds
    while last_saved(run_dir) <= before and time.monotonic() < end:
        stay(process, 0.01)


def kill_in_start_up(example, run_dir, delay):
    with running(example, run_dir) as process:
        wait_for_checkpoint(process, run_dir, delay)


def kill_in_training(example, run_dir, delay):
    with running(example, run_dir) as process:
        wait_for_checkpoint(process, run_dir)
        stay(process, delay)


class Undisturbed(NamedTuple):
    run_dir: Path
    start_up_secs: float
    training_secs: float


@pytest.fixture(scope="module")
def undisturbed(example, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed")
    begin = time.monotonic()
    with running(example, run_dir) as process:
        wait_for_checkpoint(process, run_dir)
        started = time.monotonic()
        finish(process)
    return Undisturbed(run_dir, started - begin, time.monotonic() - started)


@pytest.fixture(scope="module")
def killed(example, undisturbed, tmp_path_factory):
    """A run that was killed ten times: while it started, trained and saved."""
    run_dir = tmp_path_factory.mktemp("killed")
    chance = random.Random(SEED)
    kills = [(kill_in_start_up, undisturbed.start_up_secs * 0.75)] * 3
    kills += [(kill_in_training, undisturbed.training_secs / 30)] * 7
    chance.shuffle(kills)
    for way, longest in kills:
        delay = chance.uniform(0, longest)
        way(example, run_dir, delay)
        print(f"{way.__name__} {delay:.3f} s, seed {SEED}: saved up to {last_saved(run_dir)}")
    assert 0 < last_saved(run_dir) < LAST_STEP
    assert f"resumed from step {last_saved(run_dir)}" in run(example, run_dir)
    return run_dir


def variables(run_dir):
    """Parameters and moments, and what torch draws random numbers from."""
    return load_file(run_dir / f"model.ckpt-{LAST_STEP}" / "variables.safetensors")


def steps_by_tag(run_dir):
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0, "images": 0}).Reload()
    tags = events.Tags()
    readers = {"scalars": events.Scalars, "histograms": events.Histograms, "images": events.Images}
    return {
        tag: [event.step for event in read(tag)]
        for kind, read in readers.items()
        for tag in tags[kind]
    }


def test_parameters_end_bit_for_bit_the_same(undisturbed, killed):
    expected, got = variables(undisturbed.run_dir), variables(killed)
    assert expected.keys() == got.keys()
    assert [name for name in expected if expected[name].tobytes() != got[name].tobytes()] == []
    assert any("conv1" in name for name in expected)


def test_curves_show_each_step_once(undisturbed, killed):
    expected, got = steps_by_tag(undisturbed.run_dir), steps_by_tag(killed)
    speed, killed_speed = expected.pop("global_step/sec"), got.pop("global_step/sec")
    assert got == expected
    assert expected["loss"] == list(range(1, LAST_STEP, 50))
    # Its clock starts anew with each process, and the steps are those that it could time.
    assert sorted(set(killed_speed)) == killed_speed
    assert set(speed) > set()


def test_finished_run_says_what_was_reached(example, undisturbed):
    output = run(example, undisturbed.run_dir).splitlines()
    assert output[-2].startswith(f"step {LAST_STEP}: ")
    assert float(output[-2].split()[2].rstrip("%")) >= 98
    assert "make board" in output[-1]


def test_ctrl_c_saves_the_step_and_ends_well(example, tmp_path):
    with running(example, tmp_path) as process:
        wait_for_checkpoint(process, tmp_path)
        process.send_signal(signal.SIGINT)
        output = finish(process).splitlines()
    assert 0 < last_saved(tmp_path) < LAST_STEP
    assert output[-2].startswith(f"step {last_saved(tmp_path)}: ")
