"""The digits examples, killed again and again, end where an undisturbed run ends."""

import math
import os
import random
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLES = Path(__file__).parents[1] / "examples"
# An optimizer of torch loads torch._dynamo.
FRAMEWORKS = {"digits_jax.py": ["jax", "optax"], "digits_torch.py": ["torch._dynamo"]}
LAST_STEP = 500
SAVE_STEPS = 20
SEED = 20240229


class Example:
    """An example; a test that takes it runs once on each."""

    def __init__(self, launcher, path):
        self.launcher, self.path = launcher, path

    @contextmanager
    def running(self, run_dir):
        """Start the example, and kill it where the block ends if it has not finished."""
        limits = ["--steps", str(LAST_STEP), "--save-steps", str(SAVE_STEPS)]
        log = run_dir / "log"
        self.number = self.launcher.start(log, self.path, "--dir", run_dir, *limits)
        try:
            yield
        finally:
            if self.number is not None:
                self.launcher.kill(self.number)

    def finish(self, run_dir):
        """Wait for the end of what is running there; what it printed."""
        number, self.number = self.number, None
        status, output = self.launcher.wait(number), (run_dir / "log").read_text()
        assert status == 0, output
        return output

    def run(self, run_dir):
        with self.running(run_dir):
            return self.finish(run_dir)

    def stay(self, run_dir, seconds):
        """Wait so long, in which it must not end."""
        time.sleep(seconds)
        assert self.launcher.living() == 1, (run_dir / "log").read_text()


@pytest.fixture(scope="module", params=FRAMEWORKS)
def example(request, launcher_with):
    modules = ["runhooks", "sklearn.datasets", "sklearn.model_selection"]
    launcher = launcher_with(
        *FRAMEWORKS[request.param],
        *modules,
        OMP_NUM_THREADS="1",
    )
    return Example(launcher, EXAMPLES / request.param)


def last_saved(run_dir):
    names = [path.name for path in run_dir.glob("model.ckpt-*")]
    return max((int(name.removeprefix("model.ckpt-")) for name in names), default=-1)


def wait_for_checkpoint(example, run_dir, seconds=math.inf):
    """Wait for one beyond those that are there and that of step 0, but no longer than that."""
    before, end = max(last_saved(run_dir), 0), time.monotonic() + seconds
    while last_saved(run_dir) <= before and time.monotonic() < end:
        example.stay(run_dir, 0.01)


def kill_in_start_up(example, run_dir, delay):
    with example.running(run_dir):
        wait_for_checkpoint(example, run_dir, delay)


def kill_in_training(example, run_dir, delay):
    with example.running(run_dir):
        wait_for_checkpoint(example, run_dir)
        example.stay(run_dir, delay)


class Undisturbed(NamedTuple):
    run_dir: Path
    start_up_secs: float
    training_secs: float


@pytest.fixture(scope="module")
def interrupted(example, tmp_path_factory):
    """The first run, which compiles what the others find compiled, after a Ctrl-C; its output."""
    run_dir = tmp_path_factory.mktemp("interrupted")
    with example.running(run_dir):
        wait_for_checkpoint(example, run_dir)
        os.kill(example.number, signal.SIGINT)
        return run_dir, example.finish(run_dir).splitlines()


@pytest.fixture(scope="module")
def undisturbed(example, interrupted, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed")
    begin = time.monotonic()
    with example.running(run_dir):
        wait_for_checkpoint(example, run_dir)
        started = time.monotonic()
        example.finish(run_dir)
    return Undisturbed(run_dir, started - begin, time.monotonic() - started)


@pytest.fixture(scope="module")
def killed(example, undisturbed, tmp_path_factory):
    """A run that was killed again and again: while it started, trained and saved."""
    run_dir = tmp_path_factory.mktemp("killed")
    chance = random.Random(SEED)
    kills = [(kill_in_start_up, undisturbed.start_up_secs * 0.75)] * 2
    kills += [(kill_in_training, undisturbed.training_secs / 30)] * 4
    chance.shuffle(kills)
    for way, longest in kills:
        delay = chance.uniform(0, longest)
        way(example, run_dir, delay)
        print(f"{way.__name__} {delay:.3f} s, seed {SEED}: saved up to {last_saved(run_dir)}")
    assert 0 < last_saved(run_dir) < LAST_STEP
    assert f"resumed from step {last_saved(run_dir)}" in example.run(run_dir)
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
    output = example.run(undisturbed.run_dir).splitlines()
    assert output[-2].startswith(f"step {LAST_STEP}: ")
    assert float(output[-2].split()[2].rstrip("%")) >= 95
    assert "make board" in output[-1]


def test_ctrl_c_saves_the_step_and_ends_well(interrupted):
    run_dir, output = interrupted
    assert 0 < last_saved(run_dir) < LAST_STEP
    assert output[-2].startswith(f"step {last_saved(run_dir)}: ")
