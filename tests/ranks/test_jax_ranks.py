"""Processes of jax.distributed that train on arrays which span them."""

import json
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.events import read

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SIZE = 2


class Training:
    """The processes of one program, which have begun; ``start`` returns how to wait for one."""

    def __init__(self, start, folder, program, *words):
        folder.mkdir()
        self.folder = folder
        self.holder = socket.socket(socket.AF_INET6)  # jax shares the port; nobody else can take it
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.holder.bind(("::", 0))
        port = self.holder.getsockname()[1]
        words = [HERE / program, *(port if it == "PORT" else it for it in words)]
        self.waits = [start(folder / f"{rank}.log", *words, rank) for rank in range(SIZE)]

    def end(self):
        """Return the statuses of all processes, and what they have said."""
        statuses = [wait() for wait in self.waits]
        self.holder.close()
        return statuses, [(self.folder / f"{rank}.log").read_text() for rank in range(SIZE)]

    def found(self, rank):
        return json.loads((self.folder / f"{rank}.json").read_text())


def whole(log, *words):
    """Start a process with an end of its own, which a launcher spares what it starts."""
    with log.open("w") as file:
        command = [sys.executable, *map(str, words)]
        return subprocess.Popen(command, stdout=file, stderr=file).wait


@pytest.fixture(scope="module")
def trainings(jax_launcher, tmp_path_factory):
    """What waits for seconds, all of which begins at once."""

    def launched(log, *words):
        return partial(jax_launcher.wait, jax_launcher.start(log, *words))

    def start(event, start):
        return Training(start, folder / event, "jax_program.py", folder / event, "PORT", event)

    folder = tmp_path_factory.mktemp("jax")
    return {
        "SIGKILL": start("SIGKILL", whole),
        "data end": start("data end", whole),
        "SIGTERM": start("SIGTERM", launched),
        "group": Training(launched, folder / "group", "group_program.py", "jax", "PORT"),
    }


def test_ranks_share_keys_and_meet(trainings):
    statuses, texts = trainings["group"].end()
    assert statuses == [0] * SIZE, texts


def test_the_process_of_a_rank_ends_soon_after_another_was_killed(trainings):
    statuses, texts = trainings["SIGKILL"].end()  # JAX waits for a heartbeat, for 100 seconds
    assert statuses == [-signal.SIGALRM, -signal.SIGKILL], texts
    kind, text = trainings["SIGKILL"].found(0)
    assert "Gloo" in text, kind


def test_data_that_end_in_a_run_while_others_wait_end_all(trainings):
    statuses, texts = trainings["data end"].end()
    assert 0 not in statuses, texts
    assert "rank 0 has not come out of run 9 in 5 seconds" in texts[0]
    kind, text = trainings["data end"].found(1)
    assert kind == "PeerFailedError"
    assert "its loop has ended after 8 runs, at global step 8" in text


def test_processes_stop_together_at_a_signal_to_one_and_go_on_where_they_were(trainings):
    training = trainings["SIGTERM"]
    statuses, texts = training.end()
    assert statuses == [0] * SIZE, texts
    (stopped, ended), (stopped_1, ended_1) = [training.found(rank) for rank in range(SIZE)]
    assert stopped[0] == stopped_1[0] in (5, 6)  # rank 0 may have begun the next run
    assert stopped[1:2] + stopped_1[1:2] == ["SIGTERM", "SIGTERM"]
    assert ended[0] == ended_1[0] == 30
    weights = [it for shards in (ended[2], ended_1[2]) for shard in shards for it in shard]
    np.testing.assert_allclose(weights, straight(len(weights) // SIZE, 30), rtol=1e-3)

    run = training.folder / "run"
    assert rh.latest_checkpoint(run) == str(run / "model.ckpt-30")
    assert [rank for rank, text in enumerate(texts) if "saved checkpoint" in text] == [0]
    assert [rank for rank, text in enumerate(texts) if "the session has ended" in text] == [0]
    assert len(list(run.glob("events.*"))) == 1
    (contents,) = read(run).values()
    steps = list(contents.scalars["loss"].steps)
    assert steps == sorted(set(steps))


def straight(local, last_step):
    """The weights after that many steps of an undisturbed training."""
    weights = np.ones(SIZE * local)
    for step in range(last_step):
        batch = np.concatenate([np.arange(local) + rank + step for rank in range(SIZE)])
        weights = weights - 1e-4 * np.mean(weights * batch) * batch
    return weights
