"""A process that is killed while it saves leaves sound checkpoints, and nothing that misleads."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from runhooks.checkpoint import Saver, checkpoints, read_checkpoint, restore_latest

# Saves every step twice, the second time over the first, says when a step is durable, and is
# killed by a thread of its own after a while, given in seconds.
SAVING = """
import os, signal, sys, threading
from types import SimpleNamespace
import numpy as np
from runhooks.checkpoint import Saver, Snapshot

folder, step, life = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
saver = Saver(max_to_keep=2)
while True:
    step += 1
    arrays = {"global_step": np.int64(step), "weights": np.full(300_000, step, np.float32)}
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    sess = SimpleNamespace(global_step=step, snapshot=lambda: Snapshot(arrays, {}))
    for _ in range(2):
        saver.save(sess, folder + "/model.ckpt", global_step=step)
        print(step, flush=True)
    if life:
        threading.Timer(life, os.kill, (os.getpid(), signal.SIGKILL)).start()
        life = 0
"""


def save_until_killed(folder: Path, step: int, life_secs: float) -> int:
    """Let a process go on from ``step`` until it is killed; the last step it called durable."""
    arguments = [sys.executable, "-c", SAVING, str(folder), str(step), str(life_secs)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout.split()[-1])


def test_only_sound_checkpoints_are_left(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    step = 0
    for _ in range(3):
        step = save_until_killed(tmp_path, step, life_secs=random.uniform(0.001, 0.03))
        for path in checkpoints(tmp_path):
            read_checkpoint(Path(path))
        sess = make_session(global_step=np.int64(0), weights=np.zeros(1, np.float32))
        assert restore_latest(Saver(), sess, tmp_path) is not None
        # The process may have been killed between a save and the line that tells of it.
        assert sess.global_step in (step, step + 1)
        assert set(sess.arrays["weights"]) == {sess.global_step}
        step = sess.global_step
    Saver(max_to_keep=2).save(sess, tmp_path / "model.ckpt", global_step=step)
    for folder in tmp_path.iterdir():
        assert [path.name for path in folder.iterdir()] == ["checkpoint.safetensors"]


TRAINING = """
import os, signal, sys
import numpy as np
import runhooks as rh

def kill(event, arguments):
    if event == "os.rmdir" and "model.ckpt-2" in str(arguments[0]) and sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
graph = rh.graph(lambda a: (a + 1, {"sum": a.sum()}), a=np.zeros(2))
saver = rh.Saver(keep=[rh.KeepLast(2)])
with graph.as_default(), rh.MonitoredTrainingSession(
    checkpoint_dir=sys.argv[1],
    hooks=[rh.StopAtStepHook(last_step=4)],
    save_checkpoint_steps=1,
    scaffold=rh.Scaffold(saver=saver),
) as session:
    while not session.should_stop():
        session.run("train_op")
"""


def test_what_is_left_of_a_checkpoint_goes_though_nothing_is_saved_again(tmp_path: Path) -> None:
    def train(how: str) -> tuple[int, set[str]]:
        program = [sys.executable, "-c", TRAINING, str(tmp_path), how]
        code = subprocess.run(program, check=False).returncode
        return code, {path.name for path in tmp_path.iterdir() if "tfevents" not in path.name}

    code, names = train("kill")
    assert code == -signal.SIGKILL
    assert "model.ckpt-2" in names
    assert train("finish") == (0, {"model.ckpt-3", "model.ckpt-4"})
