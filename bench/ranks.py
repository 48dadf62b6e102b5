"""What agreement between two ranks costs a step, beside what other loops do for it in each.

Each rank is a process; both make the same rounds. The figures are those of rank 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import runhooks as rh
from bench.measure import NEVER, Contender, Loop, measure, table
from bench.sharded_saving import RANKS, start_torch
from runhooks.ranks import AloneGroup, entered


def monitored() -> rh.MonitoredSession:
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step().assign_add(1, name="step")
        hooks = [rh.StopAtStepHook(last_step=NEVER), rh.TimeLimitHook(NEVER)]
        return rh.MonitoredSession(hooks=hooks)


def steps(session: rh.MonitoredSession) -> Loop:
    def loop(times: int) -> None:
        run, should_stop = session.run, session.should_stop
        for _ in range(times):
            should_stop()
            run("step")

    return loop


def repeated(act: Callable[[], object]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            act()

    return loop


def reduced(distributed: Any, torch: Any) -> Callable[[], object]:
    flag = torch.zeros(1)
    return lambda: distributed.all_reduce(flag)


def contenders(alone: rh.MonitoredSession, together: rh.MonitoredSession) -> list[Contender]:
    import torch
    from accelerate import Accelerator
    from lightning.pytorch.strategies import DDPStrategy

    accelerator: Any = Accelerator(cpu=True)
    strategy: Any = DDPStrategy(parallel_devices=[torch.device("cpu")] * RANKS)
    bare, name = "runhooks, one process", "runhooks, two ranks"
    return [
        Contender(bare, steps(alone)),
        Contender(name, steps(together), bare, 0.5),
        Contender("an all-reduce of one number", repeated(reduced(torch.distributed, torch))),
        Contender(
            "Lightning's reduce_boolean_decision",
            repeated(lambda: strategy.reduce_boolean_decision(False)),
        ),
        Contender("accelerate's check_trigger", repeated(accelerator.check_trigger)),
    ]


def be_rank(rank: int, folder: Path, turns: int, times: int) -> None:
    """Measure together with the other rank, and print the rounds."""
    start_torch(rank, 0, folder)
    with entered(AloneGroup()):
        alone = monitored()
    together = monitored()
    rounds = measure(contenders(alone, together), turns, times)
    together.close()
    alone.close()
    print(json.dumps(rounds), flush=True)
    if rank == 0:
        sys.stdin.read()  # it has the store: it leaves when the other has


def show(turns: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.ranks", str(rank), folder, str(turns), str(times)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sys.stderr if "-v" in sys.argv else subprocess.DEVNULL,
                text=True,
                env=environment(rank),
            )
            for rank in range(RANKS)
        ]
        outputs = [rank.communicate()[0] for rank in reversed(ranks)]
    rounds = json.loads(outputs[-1].splitlines()[-1])
    made = repeated(lambda: None)  # by the ranks
    base, ours, *others = rounds
    shown = [Contender(base, made), Contender(ours, made, base, 0.5)]
    shown += [Contender(name, made) for name in others]
    print(f"\nagreement of {RANKS} ranks on gloo: medians of {turns} rounds of {times}")
    print(table(shown, rounds), flush=True)


def environment(rank: int) -> dict[str, str]:
    """As ``torchrun`` sets it, for the peers that look."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0, "OMP_NUM_THREADS": 1}
    return {**os.environ, **{name: str(value) for name, value in {**ranks, **where}.items()}}


if __name__ == "__main__":
    be_rank(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
