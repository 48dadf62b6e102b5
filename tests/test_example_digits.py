"""The digits examples, killed again and again, end where an undisturbed run ends."""

import random
import signal
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLES = Path(__file__).parents[1] / "examples"
STRUCK = Path(__file__).with_name("struck.py")
# An optimizer of torch loads torch._dynamo.
FRAMEWORKS = {"digits_jax.py": ["jax", "optax"], "digits_torch.py": ["torch._dynamo"]}
LAST_STEP = 500
SAVE_STEPS = 20
SEED = 20240229


class Example:
    """An example; a test that takes it runs once on each."""

    def __init__(self, launcher, path):
        self.launcher, self.path = launcher, path
        #: How often an undisturbed run touches a file.
        self.touches = None

    def run(self, run_dir, struck_at=0, number=signal.SIGKILL):
        """Run it to its end, or to its ``struck_at``-th touch of a file in ``run_dir``."""
        limits = ["--steps", str(LAST_STEP), "--save-steps", str(SAVE_STEPS)]
        words = [run_dir, struck_at, int(number), self.path, "--dir", run_dir, *limits]
        log = run_dir.with_name(f"{run_dir.name}.log")
        status, output = (
            self.launcher.wait(self.launcher.start(log, STRUCK, *words)),
            log.read_text(),
        )
        assert status == (-number if struck_at and number == signal.SIGKILL else 0), output
        return output


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


@pytest.fixture(scope="module")
def undisturbed(example, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    example.run(run_dir)
    example.touches = int(run_dir.with_name("run-touched").read_text())
    return run_dir


@pytest.fixture(scope="module")
def interrupted(example, undisturbed, tmp_path_factory):
    """A run after a Ctrl-C in its middle; its output."""
    run_dir = tmp_path_factory.mktemp("interrupted") / "run"
    return run_dir, example.run(run_dir, example.touches // 2, signal.SIGINT).splitlines()


@pytest.fixture(scope="module")
def killed(example, undisturbed, tmp_path_factory):
    """A run that was killed again and again: while it started, trained and saved."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    chance, touches = random.Random(SEED), example.touches
    in_start_up, in_training = (1, touches // 50), (touches // 15, touches // 5)
    kills = [in_start_up] * 2 + [in_training] * 4
    chance.shuffle(kills)
    for first, last in kills:
        struck_at = chance.randint(first, last)
        example.run(run_dir, struck_at)
        print(f"touch {struck_at} of {touches}, seed {SEED}: saved up to {last_saved(run_dir)}")
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
    expected, got = variables(undisturbed), variables(killed)
    assert expected.keys() == got.keys()
    assert [name for name in expected if expected[name].tobytes() != got[name].tobytes()] == []
    assert any("conv1" in name for name in expected)


def test_curves_show_each_step_once(undisturbed, killed):
    expected, got = steps_by_tag(undisturbed), steps_by_tag(killed)
    speed, killed_speed = expected.pop("global_step/sec"), got.pop("global_step/sec")
    assert got == expected
    assert expected["loss"] == list(range(1, LAST_STEP, 50))
    # Its clock starts anew with each process, and the steps are those that it could time.
    assert sorted(set(killed_speed)) == killed_speed
    assert set(speed) > set()


def test_finished_run_says_what_was_reached(example, undisturbed):
    output = example.run(undisturbed).splitlines()
    assert output[-2].startswith(f"step {LAST_STEP}: ")
    assert float(output[-2].split()[2].rstrip("%")) >= 95
    assert "make board" in output[-1]


def test_ctrl_c_saves_the_step_and_ends_well(interrupted):
    run_dir, output = interrupted
    assert 0 < last_saved(run_dir) < LAST_STEP
    assert output[-2].startswith(f"step {last_saved(run_dir)}: ")
