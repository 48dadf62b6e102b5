"""A process that is killed while it saves leaves sound checkpoints, and nothing that misleads."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from runhooks.checkpoint import Saver, checkpoints, read_checkpoint, restore_latest

# Saves every step twice, the second time over the first, says when a step is durable, and is
# killed by a thread of its own after a while, given in seconds.
SAVING = """
import os, signal, sys, threading
import numpy as np
from runhooks.checkpoint import Saver, Snapshot

class Session:
    def snapshot(self):
        weights = np.full(300_000, self.global_step, np.float32)
        return Snapshot({"global_step": np.asarray(self.global_step), "weights": weights}, {})

folder, step, life = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
saver, sess = Saver(max_to_keep=2), Session()
while True:
    step += 1
    sess.global_step = step
    for _ in range(2):
        saver.save(sess, folder + "/model.ckpt", global_step=step)
        print(step, flush=True)
    if life:
        threading.Timer(life, os.kill, (os.getpid(), signal.SIGKILL)).start()
        life = 0
"""


def save_until_killed(folder, step, life_secs):
    """Let a process go on from ``step`` until it is killed; the last step it called durable."""
    arguments = [sys.executable, "-c", SAVING, str(folder), str(step), str(life_secs)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout.split()[-1])


def test_only_sound_checkpoints_are_left(tmp_path, make_session):
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
        assert {path.name for path in folder.iterdir()} <= {"checkpoint.safetensors"}
