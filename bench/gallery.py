"""What an epoch of each program in ``examples/gallery`` takes under hooks, and by hand.

That is from one line about an epoch to the next, with the test, the pictures and what is saved. The
first epoch, in which JAX compiles, does not count.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import torch

from bench.measure import Contender, Effort, alternate
from bench.table import Table, tabulated

PROGRAMS = Path(__file__).parents[1] / "examples" / "gallery"
BY_HAND = "by hand"
EPOCHS = 10  # of which the first does not count


class Lines(io.StringIO):
    """What a program prints; ``times`` are those at which it has printed of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        if re.match(r"epoch \d+: ", text):
            self.times.append(time.perf_counter())
        return super().write(text)


def millisecs(program: Path, words: list[str], epochs: int) -> float:
    """Run a program in a folder of its own; return the median of its epochs but the first."""
    lines = Lines()
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = [program.name, "--dir", f"{folder}/run", "--epochs", str(epochs), *words]
        with contextlib.redirect_stdout(lines), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(str(program), run_name="__main__")
    return 1e3 * statistics.median(b - a for a, b in itertools.pairwise(lines.times))


def tables(effort: Effort) -> Iterator[Table]:
    torch.set_num_threads(1)
    compiled = {  # each run compiles it all, or finds it
        "jax_compilation_cache_dir": tempfile.mkdtemp(),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in compiled.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    programs = sorted(PROGRAMS.glob("*.py"))
    for program in (it for it in programs if '"--epochs"' in it.read_text()):
        contenders = [
            Contender(BY_HAND, partial(millisecs, program, ["--plain"]), role="limit"),
            Contender("runhooks", partial(millisecs, program, []), BY_HAND),
        ]
        rounds = alternate(contenders, effort.turns(7), effort.times(EPOCHS))
        yield tabulated(f"an epoch of {program.name}", "ms", contenders, rounds)
