"""One rank of NCCL on a GPU: a step under hooks, a checkpoint at the end, another model resumed.

The model is a GPT in ``DistributedDataParallel``. One rank has nobody to agree with: hooks are to
add no more to its step than without ranks. What is resumed has to be equal to the last bit, or this
topic fails. Without a GPU it is gloo.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import runhooks as rh
from bench import gpu_gpt
from bench.gpu import PLAIN, SLEEPING, Program, beside_plain, sized, torch_device
from bench.gpu_steps import ROUND_SECS
from bench.measure import Contender, Effort, measure, repeated
from bench.rank_processes import start_torch
from bench.saving import timed
from bench.table import Table, tabulated

STEP = "a step by hand"
CLOSED, OPENED = "the session closed, with a checkpoint", "another opened, which resumes"


def reduced(device: str) -> float:
    distributed: Any = torch.distributed
    flag = torch.zeros(1, device=device)
    distributed.all_reduce(flag)
    return flag.item()


def resumed(program: Program, turns: int) -> dict[str, list[float]]:
    """Save and resume; return milliseconds by what is done."""
    costs: dict[str, list[float]] = {STEP: [], CLOSED: [], OPENED: []}
    plain, sessions = program.plain(), []

    def open_one(folder: str) -> None:
        with program.graph().as_default():
            sessions.append(rh.MonitoredTrainingSession(checkpoint_dir=folder))

    for _ in range(turns):
        plain.loop(1)
        with tempfile.TemporaryDirectory() as folder:
            open_one(folder)
            sessions[-1].run("train_op")
            saved = sessions[-1].run("model", hooks=False)
            costs[STEP].append(timed(lambda: plain.loop(1)).blocked * 1e3)
            costs[CLOSED].append(timed(sessions[-1].close).blocked * 1e3)
            costs[OPENED].append(timed(lambda: open_one(folder)).blocked * 1e3)
            found = sessions[-1].run("model", hooks=False)
            sessions[-1].close()
        if different := [name for name in saved if not torch.equal(saved[name], found[name])]:
            raise RuntimeError(f"what was resumed differs in {', '.join(different)}")
    return costs


def tables(effort: Effort) -> Iterator[Table]:
    device = torch_device()
    backend = sized(device, "nccl", "gloo")
    with tempfile.TemporaryDirectory() as folder:
        start_torch(0, Path(folder), 1, backend)
    program = gpu_gpt.of_torch(DistributedDataParallel)
    contenders = [
        *beside_plain({PLAIN: program.plain().loop, SLEEPING: program.hooked().loop}),
        Contender("an all-reduce of one number", repeated(lambda: reduced(device)), role="limit"),
    ]
    rounds = measure(contenders, effort.turns(31), effort.times(100), ROUND_SECS)
    where = f"one rank of {backend}"
    yield tabulated(f"a step of a GPT, {where}", "µs", contenders, rounds)
    costs = resumed(program, effort.turns(5))
    rows = [Contender(name, print, role="limit" if name == STEP else "ours") for name in costs]
    yield tabulated(f"a checkpoint of a GPT, {where}", "ms", rows, costs)
