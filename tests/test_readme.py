"""The README shows a program that runs, and so do the first steps of the documentation."""

import re
import runpy
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.py"
HOOKS = ROOT / "examples" / "hooks.py"
KEEP_BEST = ROOT / "examples" / "keep_best.py"
QUICKSTART_TORCH = ROOT / "examples" / "quickstart_torch.py"
EVENT_FILES = ROOT / "examples" / "event_files.py"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a program in a folder of the test; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(program):
        runpy.run_path(str(program), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_readme_shows_what_runs():
    _, _, quickstart = QUICKSTART.read_text().partition('"""\n\n')
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown[0] == quickstart
    assert shown[1] in HOOKS.read_text()
    assert len(shown) == 2


def test_event_files_are_read_back(run, tmp_path):
    assert run(EVENT_FILES) == "0.001 at step 999\n"
    assert len((tmp_path / "loss.csv").read_text().splitlines()) == 1 + 1000 + 2 * 10


def test_best_checkpoint_is_kept(run, tmp_path):
    kept = [int(step) for step in run(KEEP_BEST).split()[1:]]
    errors = {
        event.step: event.value
        for event in EventAccumulator(str(tmp_path / "runs" / "best" / "eval"))
        .Reload()
        .Scalars("error")
    }
    best = min(errors, key=errors.get)
    assert {100, best} < set(kept)
    assert len(kept) == 4


def test_hooks_act_when_they_say(run, tmp_path):
    lines = run(HOOKS).splitlines()
    norms = [line for line in lines if "gradient norm" in line]
    assert [line.partition(":")[0] for line in norms] == [
        f"step {step}" for step in range(50, 300, 50)
    ]
    assert sum(line.startswith("loss") for line in lines) == 2


def test_pytorch_quickstart_learns(run, tmp_path):
    run(QUICKSTART_TORCH)
    checkpoint = tmp_path / "runs" / "torch-line" / "model.ckpt-500"
    learned = load_file(checkpoint / "checkpoint.safetensors")
    assert learned["model/weight"].ravel().tolist() == pytest.approx([2, -3], abs=1e-3)


def test_quickstart_learns_and_resumes(run, tmp_path):
    run(QUICKSTART)
    run(QUICKSTART)
    events = EventAccumulator(str(tmp_path / "runs" / "line")).Reload()
    losses = events.Scalars("loss")
    assert [event.step for event in losses] == list(range(1, 500, 10))
    assert losses[0].value > 1
    assert losses[-1].value == pytest.approx(0.01, rel=1)
