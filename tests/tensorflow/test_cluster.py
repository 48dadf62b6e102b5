"""A cluster of processes on loopback, whose parameter server is killed in mid-training."""

import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow

pytestmark = pytest.mark.slow

tf = tensorflow.compat.v1

PROGRAM = Path(__file__).with_name("cluster_program.py")
TRAINERS = ["chief0", "worker0", "worker1"]
LAST_STEP = 600
SAVE_STEPS = 100


class Cluster:
    """One parameter server, a chief and two workers, each a process."""

    def __init__(self, launcher, folder):
        self.folder = folder
        addresses = [f"localhost:{port}" for port in free_ports(4)]
        jobs = {"ps": addresses[:1], "chief": addresses[1:2], "worker": addresses[2:]}
        self._launcher = launcher
        self._arguments = [json.dumps(jobs), folder, str(LAST_STEP), str(SAVE_STEPS)]

    def start(self, job, task):
        log = self.folder / f"{job}{task}-{time.monotonic()}.log"
        return self._launcher.start(log, PROGRAM, *self._arguments, job, str(task))

    def wait_until(self, is_so):
        while not is_so():
            assert self._launcher.living() == 4, self.told()
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


def test_killed_parameter_server_costs_the_steps_since_the_last_checkpoint(tmp_path, launcher):
    cluster = Cluster(launcher, tmp_path)
    server = cluster.start("ps", 0)
    trainers = [cluster.start(name[:-1], name[-1]) for name in TRAINERS]
    # Each has made some steps, and the chief has saved.
    cluster.wait_until(lambda: all((tmp_path / f"{name}-trains").exists() for name in TRAINERS))
    cluster.wait_until(lambda: last_saved(tmp_path) >= SAVE_STEPS)
    launcher.kill(server)
    (tmp_path / "killed").touch()
    saved = last_saved(tmp_path)
    server = cluster.start("ps", 0)
    assert [launcher.wait(process) for process in trainers] == [0, 0, 0], cluster.told()
    launcher.kill(server)
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
