"""What agreement between two ranks adds to a step, compared with what other loops do in each step.

Each rank is a process; both make the same rounds. The figures are those of rank 0.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import runhooks as rh
from bench.measure import NEVER, Contender, Effort, Loop, measure, repeated
from bench.rank_processes import RANKS, finish, run_ranks, start_torch
from bench.table import Table, tabulated
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


def reduced(distributed: Any, torch: Any) -> Callable[[], object]:
    flag = torch.zeros(1)
    return lambda: distributed.all_reduce(flag)


LAYERS = (
    "Each run of several ranks goes through all layers of the session, as one at which a hook is "
    "due does: a decision of all may end it. It sends nothing."
)


def contenders(alone: rh.MonitoredSession, together: rh.MonitoredSession) -> list[Contender]:
    import torch
    from accelerate import Accelerator
    from lightning.pytorch.strategies import DDPStrategy

    accelerator: Any = Accelerator(cpu=True)
    strategy: Any = DDPStrategy(parallel_devices=[torch.device("cpu")] * RANKS)
    bare, name = "runhooks, one process", "runhooks, two ranks"
    peers = {
        "an all-reduce of one number": reduced(torch.distributed, torch),
        "Lightning's reduce_boolean_decision": lambda: strategy.reduce_boolean_decision(False),
        "accelerate's check_trigger": accelerator.check_trigger,
    }
    return [
        Contender(bare, steps(alone)),
        Contender(name, steps(together), bare, 0.5, why=LAYERS),
        *(Contender(peer, repeated(act), role="peer", beside=name) for peer, act in peers.items()),
    ]


def be_rank(rank: int, folder: Path, effort: Effort) -> None:
    """Measure together with the other rank."""
    start_torch(rank, folder)
    with entered(AloneGroup()):
        alone = monitored()
    together = monitored()
    title = f"agreement of {RANKS} ranks on gloo"
    both = contenders(alone, together)
    # What ranks do together, each does as often.
    rounds = measure(both, effort.turns(51), effort.times(100), most_secs=math.inf)
    table = tabulated(title, "µs", both, rounds)
    together.close()
    alone.close()
    finish(rank, [table], has_store=True)


def tables(effort: Effort) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as folder:
        yield from run_ranks("bench.ranks", folder, int(effort.quick))


if __name__ == "__main__":
    be_rank(int(sys.argv[1]), Path(sys.argv[2]), Effort(quick=sys.argv[3] == "1"))
