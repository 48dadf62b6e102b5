"""The most memory that a GPT takes on a GPU, by hand and under hooks.

Each contender has a process of its own, which makes steps. Without a GPU it is that of the process,
with the frameworks themselves.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import gpu_gpt
from bench.gpu import AWAKE, PLAIN, SAVES, SLEEPING, Program, beside_plain
from bench.measure import Effort
from bench.saving_memory import megabytes
from bench.table import Table, tabulated

MADE = {"JAX": gpu_gpt.of_jax, "PyTorch": gpu_gpt.of_torch}
MOST_SECS = 60  # of a process


def peak(program: Program, kind: str, steps: int) -> float:
    """Return the megabytes of the device, or of this process."""
    program.kinds()[kind]().loop(steps)
    if program.device == "cpu":
        return megabytes("VmHWM")
    if program.framework == "JAX":
        import jax

        return float(jax.local_devices()[0].memory_stats()["peak_bytes_in_use"]) / 1e6
    import torch

    return torch.cuda.max_memory_allocated() / 1e6


def tables(effort: Effort) -> Iterator[Table]:
    contenders = beside_plain(dict.fromkeys((PLAIN, SLEEPING, AWAKE), print))
    for framework in MADE:
        peaks = {}
        for contender in contenders:
            name, steps = contender.name, str(effort.times(SAVES + 1))
            done = subprocess.run(
                [sys.executable, "-m", "bench.gpu_memory", framework, name, steps],
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=MOST_SECS,
            )
            where, megabytes_then = done.stdout.splitlines()[-2:]
            peaks[name] = [float(megabytes_then)]
        yield tabulated(f"the most memory of a GPT, {where}", "MB", contenders, peaks)


if __name__ == "__main__":
    made = MADE[sys.argv[1]]()
    print(made.where, peak(made, sys.argv[2], int(sys.argv[3])), sep="\n")
