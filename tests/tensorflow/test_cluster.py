"""A cluster of processes on loopback, whose parameter server is killed in mid-training."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow

tf = tensorflow.compat.v1

PROGRAM = Path(__file__).with_name("cluster_program.py")
TRAINERS = ["chief0", "worker0", "worker1"]
LAST_STEP = 2000
SAVE_STEPS = 100
LIMIT_SECS = 100  # of the whole test, which takes a fifth of that


class Cluster:
    """One parameter server, a chief and two workers, each a process; all end with the block.

    What starts them has loaded TensorFlow already: loading it takes longer than all they do.
    """

    def __init__(self, folder, variables):
        self.folder = folder
        addresses = [f"localhost:{port}" for port in free_ports(4)]
        jobs = {"ps": addresses[:1], "chief": addresses[1:2], "worker": addresses[2:]}
        arguments = [json.dumps(jobs), str(folder), str(LAST_STEP), str(SAVE_STEPS), variables]
        self._launcher = subprocess.Popen(
            [sys.executable, PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        self._limit = threading.Timer(LIMIT_SECS, self._kill)
        self._limit.daemon = True

    def __enter__(self):
        self._limit.start()
        return self

    def __exit__(self, *error):
        self._limit.cancel()
        self._kill()
        with self._launcher:
            pass

    def _kill(self):
        os.killpg(self._launcher.pid, signal.SIGKILL)

    def do(self, *words):
        """Let the launcher do it; its answer, a number."""
        self._launcher.stdin.write(" ".join(map(str, words)) + "\n")
        self._launcher.stdin.flush()
        answer = self._launcher.stdout.readline()
        if not answer:
            pytest.fail(f"not in time: {words}\n{self.told()}")
        return int(answer)

    def wait_until(self, is_so):
        while not is_so():
            assert self.do("living") == 4, self.told()
            time.sleep(0.02)

    def told(self):
        return "\n".join(f"{f.name}: {f.read_text()[-3000:]}" for f in self.folder.glob("*.log"))


def free_ports(count):
    """Ports that nobody listens to now; no two are the same, for all are held until the last."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


def last_saved(folder):
    state = tf.train.get_checkpoint_state(str(folder))
    return -1 if state is None else int(state.model_checkpoint_path.rpartition("-")[2])


@pytest.mark.parametrize("variables", ["resource", "reference"])
def test_killed_parameter_server_costs_the_steps_since_the_last_checkpoint(tmp_path, variables):
    with Cluster(tmp_path, variables) as cluster:
        server = cluster.do("start", "ps", 0)
        trainers = [cluster.do("start", name[:-1], name[-1]) for name in TRAINERS]
        # Each has made some steps, and the chief has saved.
        cluster.wait_until(lambda: all((tmp_path / f"{name}-trains").exists() for name in TRAINERS))
        cluster.wait_until(lambda: last_saved(tmp_path) >= SAVE_STEPS)
        cluster.do("kill", server)
        saved = last_saved(tmp_path)
        cluster.do("start", "ps", 0)
        assert [cluster.do("wait", process) for process in trainers] == [0, 0, 0], cluster.told()
    lives = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in TRAINERS}
    assert all(life["recoveries"] >= 1 for life in lives.values())
    assert all(life["runs_after_recovery"] > 0 for life in lives.values())
    assert all(life["reason"] == "StopAtStepHook" for life in lives.values())
    lost_at, restored = lives["chief0"]["lost_at"], lives["chief0"]["restored"]
    assert SAVE_STEPS <= saved <= restored <= lost_at < LAST_STEP <= last_saved(tmp_path)
    # Each step adds 1 to the weights, while others save: had the weights not been restored with
    # the step, or the step without them, these would be a checkpoint apart.
    weights = tf.train.load_checkpoint(str(tmp_path)).get_tensor("weights")
    assert weights == pytest.approx(last_saved(tmp_path), abs=SAVE_STEPS / 2)
