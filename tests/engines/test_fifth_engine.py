"""An engine that is one file, of a library that runhooks does not ship, does all that ours do."""

import subprocess
import sys
from pathlib import Path

import pytest

import runhooks as rh
from runhooks import events

pytestmark = pytest.mark.slow

pytest.importorskip("mlx.core")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "engine_mlx.py"

# What is tested on every engine: transactions, fetches and feeds, inputs, random keys, checkpoints
# and exact resumes; the life cycle and its failures; sessions, recovery; hooks and summaries.
SUITE = [
    "contract",
    "graph",
    "hooks",
    "parity/test_life_cycle.py",
    "checkpoint/test_background_save.py",
    "checkpoint/test_session.py",
    "session/test_monitored_session.py",
    "session/test_monitored_training_session.py",
    "session/test_off_steps.py",
    "session/test_recoverable.py",
]


# Processes that tests start find the engine, too.
PYTEST = """
import os, sys, pytest
sys.path.append(sys.argv[1])
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
assert pytest.main(sys.argv[2:]) == 0
"""


def test_it_is_one_small_file():
    assert len(EXAMPLE.read_text().splitlines()) <= 150


def test_it_passes_what_every_engine_passes(torch_launcher, tmp_path):
    options = ["-q", "-n0", "-p", "engine_mlx", "--engine", "mlx", "-m", "every_engine"]
    places = [ROOT / "tests" / it for it in SUITE]
    files = {file for it in places for file in ([it] if it.is_file() else it.rglob("test_*.py"))}
    files.remove(ROOT / "tests/hooks/test_profiler.py")  # MLX has no profiler for its CPU
    # Others would be imported in vain, and the frameworks that they need.
    files = [file for file in sorted(files) if "every_engine" in file.read_text()]
    status, said = torch_launcher.run(tmp_path, PYTEST, EXAMPLE.parent, *options, *files)
    assert status == 0, said[-8000:]
    passed = int(said.splitlines()[-1].partition(" passed")[0])
    assert passed > 250


def test_it_trains_and_goes_on_as_if_it_had_never_been_stopped(tmp_path):
    folders = [tmp_path / "stopped", tmp_path / "whole"]
    for folder, steps in [(folders[0], 60), (folders[0], 100), (folders[1], 100)]:
        command = [sys.executable, EXAMPLE, "--dir", folder, "--steps", str(steps)]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr[-2000:]
    stopped, whole = (rh.checkpoint.read_checkpoint(it / "model.ckpt-100") for it in folders)
    assert stopped.arrays.keys() == whole.arrays.keys()
    assert all((stopped.arrays[name] == whole.arrays[name]).all() for name in whole.arrays)
    run_of = events.read(folders[0])["."]
    assert run_of.tags["weights/middle"].kind == "histogram"
    assert run_of.scalars["loss"].steps.tolist() == [1, 51]
