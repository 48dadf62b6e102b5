"""A training whose directory is in an S3 store is killed again and again, and ends bit for bit.

``SOAK_SEED=... pytest`` repeats the moments, as closely as a scheduler lets it.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runhooks.checkpoint import checkpoint_step, checkpoints, latest_checkpoint, read_checkpoint
from runhooks.checkpoint.files import place_of
from runhooks.checkpoint.states import encode

PROGRAM = Path(__file__).with_name("program.py")
KILLS, SAVE_STEPS, MOST_STEPS = 20, 5, 40


def start(folder, engine, *options):
    command = [sys.executable, str(PROGRAM), str(folder), "--engine", engine]
    command += ["--save-steps", str(SAVE_STEPS), *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def content(folder):
    """All that the last checkpoint holds, as bytes."""
    snapshot = read_checkpoint(place_of(latest_checkpoint(folder)))
    arrays = {name: (it.dtype, it.shape, it.tobytes()) for name, it in snapshot.arrays.items()}
    states = encode(snapshot.states)
    return arrays, states.text, {name: it.tobytes() for name, it in states.arrays.items()}


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_killed_twenty_times_it_ends_bit_for_bit(bucket, tmp_path, engine):
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SOAK_SEED={seed}")
    chance = random.Random(seed)
    url, saved, kills = f"{bucket}/run", -1, 0
    while kills < KILLS:
        options = ["--asynchronous"] if chance.random() < 0.5 else []
        word, times = chance.choice([("training", 1), ("saving", 2), ("saved", 2), ("saved", 3)])
        with start(url, engine, *options) as process:
            for line in process.stdout:
                told, step, *_ = line.split()
                if told == "start":
                    assert int(step) >= saved, f"step {saved} was saved and is lost"
                saved = int(step) if told == "saved" else saved
                times -= told == word
                if not times:
                    break
            try:
                process.wait(chance.uniform(0, 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
        assert process.returncode == -signal.SIGKILL
        kills += 1
        print(kills, options, word, saved)
        for path in checkpoints(url):
            read_checkpoint(place_of(path))
        assert saved < 0 or checkpoint_step(latest_checkpoint(url)) >= saved
    last = checkpoint_step(latest_checkpoint(url)) + MOST_STEPS
    for folder in (url, tmp_path / "undisturbed"):
        with start(folder, engine, "--last-step", last) as process:
            process.communicate()
        assert process.returncode == 0
    assert content(url) == content(tmp_path / "undisturbed")
