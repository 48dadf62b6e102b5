"""Saves that are interrupted, and disks that get full."""

from __future__ import annotations

import errno
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from runhooks.checkpoint import Saver, checkpoint_step, checkpoints, read_checkpoint
from runhooks.contract import Snapshot

CHECKPOINT_TESTS = Path(__file__).parents[1] / "checkpoint"

pytestmark = pytest.mark.soak


# Saves asynchronously, one step after the other, and says which are begun and which are on the
# disk. A Ctrl-C is an exception, wherever it hits, that the loop survives.
SAVING = """
import signal, sys
import numpy as np
import runhooks as rh

armed = False

def interrupt(number, frame):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
with rh.Graph().as_default() as graph:
    weights = rh.Variable(np.zeros(20_000), name="weights")
    step = rh.train.create_global_step()
    train = rh.group(weights.assign_add(np.ones(20_000)), step.assign_add(1))
    sess = rh.Session()
saver = rh.Saver(asynchronous=True, max_to_keep=3)
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    saved = False
    try:
        armed = True
        sess.run(train)
        saver.save(sess, sys.argv[1] + "/model.ckpt", global_step=sess.global_step)
        saver.wait()
        saved = True
        armed = False
    except KeyboardInterrupt:
        pass
    if saved:
        print("saved", sess.global_step, flush=True)
saver.save(sess, sys.argv[1] + "/model.ckpt", global_step=sess.global_step)
print("begun", sess.global_step, flush=True)
armed = True
"""


def test_a_ctrl_c_in_any_phase_of_an_asynchronous_save_loses_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SOAK_SEED={seed}")
    chance = random.Random(seed)
    for round_ in range(30):
        folder = tmp_path / str(round_)
        interrupt_saves(folder, chance)


def interrupt_saves(folder: Path, chance: random.Random) -> None:
    command = [sys.executable, "-c", SAVING, str(folder), "40"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        told = [process.stdout.readline()]
        ended = threading.Event()

        def interrupt() -> None:
            while not ended.wait(chance.uniform(0, 0.02)):
                process.send_signal(signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        for line in process.stdout:
            told.append(line)
            if line.startswith("begun"):
                break
            held = [int(path.rpartition("-")[2]) for path in checkpoints(folder)]
            assert not held or max(held) >= int(line.split()[1])
        ended.set()
        thread.join()
        if chance.random() < 0.5:  # the interpreter waits for the last one
            process.send_signal(signal.SIGINT)
        errors = process.stderr.read() if process.stderr else ""
    assert told[-1].startswith("begun"), errors
    last = int(told[-1].split()[1])
    steps = [checkpoint_step(path) for path in checkpoints(folder)]
    assert steps[-1] == last, (steps, told[-3:], errors)
    for path in map(Path, checkpoints(folder)):
        held = read_checkpoint(path).arrays
        assert set(held["weights"]) == {int(held["global_step"])}, f"{path} holds two steps"


class Session:
    """A session of one array and one state."""

    checkpoint: str | None = None

    def __init__(self, step: int) -> None:
        self.global_step = step

    def snapshot(self, into: object = None) -> object:
        arrays = {"w": np.full(40, self.global_step), "c": np.ones(2, np.complex128)}
        states = {"hook": {"seen": [self.global_step] * 5, "table": np.arange(9)}}
        return Snapshot(arrays, states)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_is_full_at_any_offset_costs_nothing_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    full = runpy.run_path(str(CHECKPOINT_TESTS / "conftest.py"))["full_at"]
    base = tmp_path / "model.ckpt"
    Saver(max_to_keep=1).save(Session(1), base, global_step=1)
    needed = sum(file.stat().st_size for file in (tmp_path / "model.ckpt-1").iterdir())
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for left in range(needed - 20):
        for step in (1, 2):  # over the one that is there, and beside it
            saver, sess = Saver(max_to_keep=1, asynchronous=asynchronous), Session(step)
            with full(monkeypatch, left), pytest.raises(OSError, match="No space") as error:
                saver.save(sess, base, global_step=step)
                saver.wait()
            assert error.value.errno == errno.ENOSPC
            assert sess.checkpoint is None
            assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt-1"]
            assert read_checkpoint(tmp_path / "model.ckpt-1").states["hook"]["seen"] == [1] * 5
