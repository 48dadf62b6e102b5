"""Processes of jax.distributed that train on arrays which span them."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

import runhooks as rh
from runhooks.events import read

PROGRAM = Path(__file__).with_name("jax_program.py")
SIZE = 2


def run_all(folder, *event):
    """Run the program on all ranks; return their statuses and what they have printed."""
    with socket.socket(socket.AF_INET6) as holder:  # jax shares the port; nobody else can take it
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("::", 0))
        port = str(holder.getsockname()[1])
        logs = [(folder / f"{rank}.log").open("w") for rank in range(SIZE)]
        processes = [
            subprocess.Popen(
                [sys.executable, PROGRAM, folder, str(rank), port, *event], stdout=log, stderr=log
            )
            for rank, log in enumerate(logs)
        ]
        for process in processes:
            process.wait()
    for log in logs:
        log.close()
    texts = [(folder / f"{rank}.log").read_text() for rank in range(SIZE)]
    return [process.returncode for process in processes], texts


def test_the_process_of_a_rank_ends_soon_after_another_was_killed(tmp_path):
    statuses, texts = run_all(tmp_path, "SIGKILL")  # JAX waits for a heartbeat, for 100 seconds
    assert statuses == [-signal.SIGALRM, -signal.SIGKILL], texts
    kind, text = json.loads((tmp_path / "0.json").read_text())
    assert "Gloo" in text, kind


def test_data_that_end_in_a_run_while_others_wait_end_all(tmp_path):
    statuses, texts = run_all(tmp_path, "data end")
    assert statuses[0] != 0, texts
    assert statuses[1] != 0, texts
    kind, text = json.loads((tmp_path / "1.json").read_text())
    assert kind == "PeerFailedError"
    assert "its loop has ended after 8 runs, at global step 8" in text
    assert "rank 0 has not come out of run 9 in 5 seconds" in texts[0]


def test_processes_stop_together_at_a_signal_to_one_and_go_on_where_they_were(tmp_path):
    statuses, texts = run_all(tmp_path)
    assert statuses == [0] * SIZE, texts

    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(SIZE)]
    (stopped, ended), (stopped_1, ended_1) = found
    assert stopped[0] == stopped_1[0] in (5, 6)  # rank 0 may have begun the next run
    assert stopped[1:2] + stopped_1[1:2] == ["SIGTERM (rank 1)", "SIGTERM"]
    assert ended[0] == ended_1[0] == 30
    weights = [it for shards in (ended[2], ended_1[2]) for shard in shards for it in shard]
    np.testing.assert_allclose(weights, straight(len(weights) // SIZE, 30), rtol=1e-3)

    run = tmp_path / "run"
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
