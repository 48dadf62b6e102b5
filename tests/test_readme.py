"""The README shows a program that runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.py"


def run_quickstart(folder):
    return subprocess.run(
        [sys.executable, "-W", "error", QUICKSTART], cwd=folder, check=True, capture_output=True
    )


def test_readme_shows_the_quickstart():
    _, _, code = QUICKSTART.read_text().partition('"""\n\n')
    assert code in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_quickstart_learns_and_resumes(tmp_path):
    run_quickstart(tmp_path)
    run_quickstart(tmp_path)
    events = EventAccumulator(str(tmp_path / "runs" / "line")).Reload()
    losses = events.Scalars("loss")
    assert [event.step for event in losses] == [1, 101, 201, 301, 401]
    assert losses[0].value > 1
    assert losses[-1].value == pytest.approx(0.01, rel=1)
