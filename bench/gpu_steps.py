"""A step of a GPT on a GPU: what sleeping hooks add to it, and that they never wait for the device.

First, both loops make steps where anything that waits for the device, or moves values between it
and the host, is an error: ``torch.cuda.set_sync_debug_mode("error")``, and
``jax.transfer_guard("disallow")``. Then profilers count what waits or moves values in as many
steps and one wait at their end, without which the counts would prove nothing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import gpu_gpt
from bench.gpu import PLAIN, SLEEPING, Training, beside_plain, jax_wait, torch_device
from bench.measure import Effort, alternate, measure
from bench.table import Table, tabulated

STEPS = 50
ROUND_SECS = 0.1  # each waits for the device once

#: Events of CUDA and, for a run without it, of the frameworks.
WAITS = re.compile(
    r"Synchronize|DtoH|D2H|BlockUntil|BlockHost|::Await|ToLiteral|asarray\(jax|_local_scalar_dense"
)


Counting = Callable[[Training, int], int]


def steps_of(training: Training, steps: int) -> None:
    for _ in range(steps):
        training.step()


def jax_waits(training: Training, steps: int) -> int:
    import jax
    import jax.numpy as jnp

    training.loop(steps)
    with jax.transfer_guard("disallow"):
        steps_of(training, steps)
    training.wait()
    options, number = jax.profiler.ProfileOptions(), jnp.ones(())
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            steps_of(training, steps)
            jax_wait(number + 1)
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
        names = [event.name for plane in planes for line in plane.lines for event in line.events]
    return sum(bool(WAITS.search(name)) for name in names)


def torch_waits(training: Training, steps: int) -> int:
    import torch

    device = torch_device()
    training.loop(steps)
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps_of(training, steps)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        training.wait()
    number = torch.ones((), device=device)
    with torch.profiler.profile() as profile:  # of all that there is
        steps_of(training, steps)
        (number + 1).item()
    return sum(bool(WAITS.search(event.name)) for event in profile.events())


def waits(where: str, loops: dict[str, Training], count: Counting, effort: Effort) -> Table:
    counts = {name: partial(count, training) for name, training in loops.items()}
    contenders = beside_plain(counts, budget=0)
    steps = effort.times(STEPS)
    alternate(contenders, 1, steps)  # the first profile is another
    title = f"waits in {steps} steps and one wait, {where}"
    return tabulated(title, "events", contenders, alternate(contenders, effort.turns(3), steps))


def tables(effort: Effort) -> Iterator[Table]:
    begun = []
    for of, count in ((gpu_gpt.of_jax, jax_waits), (gpu_gpt.of_torch, torch_waits)):
        program = of()
        loops = {PLAIN: program.plain(), SLEEPING: program.hooked()}
        contenders = beside_plain({name: training.loop for name, training in loops.items()})
        rounds = measure(contenders, effort.turns(31), effort.times(100), ROUND_SECS)
        yield tabulated(f"a step of a GPT, {program.where}", "µs", contenders, rounds)
        begun.append((program.where, loops, count))
    for where, loops, count in begun:
        yield waits(where, loops, count, effort)
