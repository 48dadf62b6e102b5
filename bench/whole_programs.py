"""Whole programs of ``examples/gallery``: by hand, in another library, and under runhooks.

The classifier in flax is beside CLU's writer and periodic actions with orbax's
``CheckpointManager``; the VAE and the GPT on two ranks are beside Lightning's ``Trainer``. All have
the same data and make the same steps. They write a point of each curve every 10 steps; they
evaluate and save after each epoch, the GPT every 20 steps, and keep the last checkpoint and the
best. The loops by hand are those of the gallery: they print means and write no event files.
Checkpoints are as durable as each library makes them: runhooks and orbax sync them to the disk; a
loop by hand and Lightning do not. With syncs that do nothing, what runhooks adds to the loops by
hand of the classifier and the VAE is about half.

*1,000 steps* are measured over whole epochs, or evaluations, from the first to the last before a
``kill -9`` between two checkpoints. *Lost to kill -9* is what the kill costs: the program is
started again, in new processes, and has lost the seconds until it has again made the step at which
it was killed. It imports, compiles, restores, and makes the 15 steps since its last checkpoint.
*Bookkeeping* counts lines that are neither blank nor comment, without imports, and without the
model, the data and the steps that the loops of the gallery share.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

from bench import lines
from bench.measure import Contender, Effort, alternate
from bench.programs.killed import Runs
from bench.table import Table, tabulated

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BY_HAND = "by hand"
BEHIND = 15  # steps from the last checkpoint to the kill

Measure = Callable[[Any], float]


class Program(NamedTuple):
    """A program of the gallery and its peer.

    Args:
        title: What the tables call it.
        gallery: The module in the gallery.
        peer: The module of the peer.
        library: What the peer uses.
        options: What the command line of the gallery's would give.
        every: Steps from one checkpoint to the next.
        saves: Checkpoints before the kill; behind it, there is one more.
        ranks: On how many it runs.
    """

    title: str
    gallery: str
    peer: str
    library: str
    options: dict[str, Any]
    every: int
    saves: int
    ranks: int = 1


PROGRAMS = [
    Program(
        title="a classifier in flax",
        gallery="gallery.classifier_flax",
        peer="bench.programs.classifier_clu",
        library="CLU and orbax",
        options={"epochs": 16, "batch_size": 64, "lr": 3e-3, "save_steps": 22},
        every=22,
        saves=15,
    ),
    Program(
        title="a VAE in PyTorch",
        gallery="gallery.vae_torch",
        peer="bench.programs.vae_lightning",
        library="Lightning",
        options={"epochs": 16, "batch_size": 64, "lr": 2e-3, "seed": 1, "save_steps": 23},
        every=23,
        saves=15,
    ),
    Program(
        title="a GPT in PyTorch on two ranks",
        gallery="gallery.gpt_torch",
        peer="bench.programs.gpt_lightning",
        library="Lightning",
        options={
            "steps": 60,
            "lr": 5e-3,
            "seed": 1,
            "log_interval": 10,
            "test_steps": 20,
            "save_steps": 20,
        },
        every=20,
        saves=2,
        ranks=2,
    ),
]


def tables(effort: Effort) -> Iterator[Table]:
    prepare()
    for program in PROGRAMS:
        runs = runs_of(program)
        killed = {name: it.killed for name, it in runs.items()}
        restarted = {name: it.restarted for name, it in runs.items()}
        yield timed(program, "1,000 steps", killed, effort.turns(3))
        yield timed(program, "lost to kill -9", restarted, 1)
        yield bookkeeping(program)


def prepare() -> None:
    """Let new processes find the gallery, and fork others from one that has imported it all."""
    sys.path.append(str(EXAMPLES))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a second start finds byte code
    forkserver.set_forkserver_preload([it.peer for it in PROGRAMS])
    cache = {  # what is forked is timed once it has compiled; what is started compiles as it would
        "JAX_COMPILATION_CACHE_DIR": tempfile.mkdtemp(),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    os.environ.update(cache)
    forkserver.ensure_running()
    for name in cache:
        del os.environ[name]


def runs_of(program: Program) -> dict[str, Runs]:
    ways = {
        BY_HAND: (program.gallery, "plain"),
        program.library: (program.peer, "train"),
        "runhooks": (program.gallery, "hooked"),
    }
    return {
        name: Runs(
            module,
            function,
            program.gallery,
            program.options,
            ranks=program.ranks,
            timed=(program.every, program.every * program.saves),
            killed_at=program.every * program.saves + BEHIND,
            steps=program.every * (program.saves + 1),
        )
        for name, (module, function) in ways.items()
    }


def timed(program: Program, what: str, measures: Mapping[str, Measure], turns: int) -> Table:
    """Measure each way of a program, in turns."""
    found = contenders(program, measures)
    return tabulated(f"{program.title}: {what}", "s", found, alternate(found, turns))


def bookkeeping(program: Program) -> Table:
    """Count the lines of each way of a program."""
    gallery = source_of(EXAMPLES, program.gallery)
    plain, hooked, peer = lines.of_bookkeeping(gallery, source_of(ROOT, program.peer))
    counts = {BY_HAND: plain, program.library: peer, "runhooks": hooked}
    found = contenders(program, dict.fromkeys(counts, float))
    rounds = {name: [float(count)] for name, count in counts.items()}
    return tabulated(f"{program.title}: bookkeeping", "lines", found, rounds)


def contenders(program: Program, measures: Mapping[str, Measure]) -> list[Contender]:
    """Return the three ways of a program, which are measured as ``measures`` says."""
    return [
        Contender(BY_HAND, measures[BY_HAND], role="limit"),
        Contender("runhooks", measures["runhooks"], BY_HAND),
        Contender(program.library, measures[program.library], BY_HAND, role="peer"),
    ]


def source_of(root: Path, module: str) -> str:
    return root.joinpath(*module.split(".")).with_suffix(".py").read_text()
