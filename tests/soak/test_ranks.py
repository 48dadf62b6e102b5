"""Ranks that meet with accidents, round after round: all end, in time, and resume exactly."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh

pytestmark = pytest.mark.soak

ROUNDS = 200
LAST_STEP = 60
DEADLINE_SECS = 40  # of a round; a collective of gloo would wait for half an hour

ACCIDENTS = [
    *("SIGTERM", "SIGTERM to all", "stop", "time limit", "sleep", "data ends", "none"),
    *("raise", "loader raises", "hang", "SIGSTOP", "SIGKILL", "SIGKILL at any time"),
    *("SIGKILL in a save", "data end early in a run"),
]
STATISTICS = defaultdict(list)  # by accident: how the others ended, after how many seconds


@pytest.fixture(scope="module", autouse=True)
def told():
    yield
    for accident, ends in sorted(STATISTICS.items()):
        kinds = sorted({how for how, _ in ends})
        print(f"\n{accident}: {len(ends)} rounds, {kinds}, at most {max(s for _, s in ends):.2f} s")


def expected(size, last_step):
    total = 0
    for step in range(last_step):
        total = (total * 31 + sum(1000 * step + rank for rank in range(size))) % 2**31
    return total


def events_of(accident, victim, at, size):
    at = str(at)
    if accident in ("SIGTERM", "stop", "sleep", "raise", "hang", "SIGSTOP", "SIGKILL"):
        events = {"at": {str(victim): {at: accident}}}
        if accident == "hang":  # of all others, once one has failed
            events = {"at": {str(rank): {at: "hang"} for rank in range(size)}}
            events["at"][str(victim)] = {at: "raise"}
        return events
    if accident == "SIGTERM to all":
        return {"at": {str(rank): {at: "SIGTERM"} for rank in range(size)}}
    if accident == "time limit":
        return {"time_limit": 0.2, "clock": {str(victim): 3600.0}}
    if accident == "data ends":
        return {"batches": {str(rank): int(at) + 1 for rank in range(size)}}
    if accident == "SIGKILL in a save":
        return {"dies_saving": [victim, 2 + int(at) % 3]}
    if accident == "data end early in a run":
        batches = {str(rank): int(at) + (rank != victim) for rank in range(size)}
        return {"batches": batches, "draws": True}
    if accident == "loader raises":
        return {"loader_raises": {str(victim): int(at)}}
    return {}


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_accidents(ranks, seed):
    generator = random.Random(seed)
    accident = ACCIDENTS[seed % len(ACCIDENTS)]
    size = generator.choice([2, 2, 3, 4])
    victim, at = generator.randrange(size), generator.randrange(1, 50)
    start = time.monotonic()
    common = {
        "saves": 0.05, "last_step": LAST_STEP, "silence_secs": 2.0, "grace_secs": 1.0,
        "directory": f"soak-{seed}", "is_chief": [rank == size - 1 for rank in range(size)],
        "asynchronous": generator.random() < 0.5,
    }  # fmt: skip
    training = ranks.train(size, **common, **events_of(accident, victim, at, size))
    if accident == "SIGKILL at any time":
        while not training.has_started(victim) and time.monotonic() - start < DEADLINE_SECS:
            time.sleep(0.001)
        time.sleep(generator.random() / 5)
        with suppress(ProcessLookupError):
            os.kill(training.processes[victim], signal.SIGKILL)
    if accident == "SIGSTOP":
        for rank in range(size):
            if rank != victim:
                ranks.launcher.wait(training.processes[rank])
        os.kill(training.processes[victim], signal.SIGKILL)
        statuses, found = None, [training.found(rank) for rank in range(size)]
    else:
        statuses, found = training.end()
    secs = time.monotonic() - start
    logs = [training.log(rank) for rank in range(size)]
    assert secs < DEADLINE_SECS, logs
    others = [it for rank, it in enumerate(found) if rank != victim]
    STATISTICS[accident].append((how(others), secs))
    ends_well = accident in ACCIDENTS[:7]
    if accident == "data end early in a run":  # before others have begun it, or else in it
        ends_well = not any(it and it["error"] for it in found)
    if ends_well:
        assert [it and it["error"] for it in found] == [None] * size, (statuses, logs)
        assert len({(it["step"], it["total"]) for it in found}) == 1, found
        assert found[0]["total"] == expected(size, found[0]["step"])
    elif accident not in ("SIGKILL at any time", "SIGKILL in a save"):  # they may not come
        assert all(it is None or it["error"] for it in found), found

    resumed = ranks.train(size, **common)
    statuses, found = resumed.end()
    logs += [resumed.log(rank) for rank in range(size)]
    assert statuses == [0] * size, logs
    ends = {(it["step"], it["total"]) for it in found if not it["error"]}
    assert ends == {(LAST_STEP, expected(size, LAST_STEP))}, (found, logs)


def how(others):
    return " and ".join(
        sorted({"killed" if it is None else (it["error"] or ["well"])[0] for it in others})
    )


EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_torch.py"
STEPS = 3000


def torchrun(folder, *options):
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", *options]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    program = [EXAMPLE, "--dir", folder / "run", "--steps", str(STEPS), "--save-secs", "0.5"]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *launcher, *rendezvous, *program],
            stdout=log,
            stderr=subprocess.STDOUT,
            # Else ranks that are started again find the addresses of those before in the store.
            env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert torchrun(folder).wait() == 0, (folder / "log").read_text()
    return rh.load(folder / "run")


def workers(agent):
    """The processes that the agent has started, by their ranks."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parent = re.search(r"PPid:\t(\d+)", (process / "status").read_text()).group(1)
            rank = re.search(rb"\0RANK=(\d+)", (process / "environ").read_bytes())
            if int(parent) == agent.pid and rank:
                found[int(rank.group(1))] = int(process.name)
    return found


@pytest.mark.parametrize("act", ["kill rank 0", "kill rank 1", "term agent", "term rank 1"])
def test_torchrun(tmp_path, undisturbed, act):
    restarts = ["--max-restarts", "2"] if act.startswith("kill") else []
    agent = torchrun(tmp_path, *restarts)
    while rh.latest_checkpoint(tmp_path / "run") in (None, str(tmp_path / "run/model.ckpt-0")):
        assert agent.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    word, whom, *rank = act.split()
    victim = agent.pid if whom == "agent" else workers(agent)[int(rank[0])]
    os.kill(victim, signal.SIGKILL if word == "kill" else signal.SIGTERM)
    start = time.monotonic()
    status = agent.wait()
    text = (tmp_path / "log").read_text()
    if word == "term":  # the run is resumed by hand
        print(f"\n{act}: all ended in {time.monotonic() - start:.2f} s, with {status}")
        assert text.count("all 2 ranks have ended") == 1, text
        again = torchrun(tmp_path)
        assert again.wait() == 0, (tmp_path / "log").read_text()
    else:
        assert status == 0, text
    np.testing.assert_equal(rh.load(tmp_path / "run"), undisturbed)  # each leaf, exactly
