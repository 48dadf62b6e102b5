"""The digits examples, killed again and again, end where an undisturbed run ends."""

import random
import signal
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
STRUCK = Path(__file__).with_name("struck.py")
LAUNCHERS = {"digits_jax.py": "jax_launcher", "digits_torch.py": "torch_launcher"}
LAST_STEP = 200
SAVE_STEPS = 20
SEED = 20240229


class Example:
    """An example; a test that takes it runs once on each."""

    def __init__(self, launcher, path):
        self.launcher, self.path = launcher, path

    def run(self, run_dir, struck_at=0, number=signal.SIGKILL):
        """Run it to its end, or to its ``struck_at``-th touch of a file; return what it says."""
        limits = ["--steps", str(LAST_STEP), "--save-steps", str(SAVE_STEPS)]
        words = [run_dir, struck_at, int(number), self.path, "--dir", run_dir, *limits]
        log = run_dir.with_name(f"{run_dir.name}.log")
        status = self.launcher.wait(self.launcher.start(log, STRUCK, *words))
        said = log.read_text()
        assert status == (-number if struck_at and number == signal.SIGKILL else 0), said
        return said


@pytest.fixture(scope="module", params=LAUNCHERS)
def example(request):
    launcher = request.getfixturevalue(LAUNCHERS[request.param])
    return Example(launcher, EXAMPLES / request.param)


def last_saved(run_dir):
    names = [path.name for path in run_dir.glob("model.ckpt-*")]
    return max((int(name.removeprefix("model.ckpt-")) for name in names), default=-1)


@pytest.fixture(scope="module")
def undisturbed(example, tmp_path_factory):
    """A run that nothing happens to, and what it has said."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    return run_dir, example.run(run_dir)


@pytest.fixture(scope="module")
def killed(example, undisturbed, tmp_path_factory):
    """A run that is killed while it starts, trains and saves, and gets a Ctrl-C between."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    touches = int(undisturbed[0].with_name("run-touched").read_text())
    chance = random.Random(SEED)
    example.run(run_dir, chance.randint(1, touches // 50))
    example.run(run_dir, chance.randint(touches // 5, touches // 3))
    told = example.run(run_dir, touches // 4, signal.SIGINT).splitlines()
    stopped_at = last_saved(run_dir)
    assert told[-2].startswith(f"step {stopped_at}: ")
    example.run(run_dir, chance.randint(touches // 15, touches // 5))
    assert stopped_at <= last_saved(run_dir) < LAST_STEP
    assert f"resumed from step {last_saved(run_dir)}" in example.run(run_dir)
    return run_dir


def variables(run_dir):
    """Parameters and moments, and what torch draws random numbers from."""
    return load_file(run_dir / f"model.ckpt-{LAST_STEP}" / "checkpoint.safetensors")


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
    expected, got = variables(undisturbed[0]), variables(killed)
    assert expected.keys() == got.keys()
    assert [name for name in expected if expected[name].tobytes() != got[name].tobytes()] == []
    assert any("conv1" in name for name in expected)


def test_curves_show_each_step_once(undisturbed, killed):
    expected, got = steps_by_tag(undisturbed[0]), steps_by_tag(killed)
    speeds = [it.pop("global_step/sec", []) for it in (expected, got)]
    assert got == expected
    assert expected["loss"] == list(range(1, LAST_STEP, 50))
    # Its clock starts anew with each process, and the steps are those that it could time.
    assert all(sorted(set(steps)) == steps for steps in speeds)


def test_it_says_what_was_reached(undisturbed):
    *_, reached, advice = undisturbed[1].splitlines()
    assert reached.startswith(f"step {LAST_STEP}: ")
    assert float(reached.split()[2].rstrip("%")) >= 90
    assert "make board" in advice
