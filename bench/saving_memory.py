"""Saving a state of 500 MB: the peak memory in addition to the state.

Each contender has its own process, which makes steps and saves four times. The memory is the
process's peak, less its peak while it only makes steps.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Contender, Effort
from bench.table import Table, tabulated

SAVES = 4
#: Makes a step and saves into a folder; returns when that is on the disk.
StepAndSave = Callable[[Path], None]


def ours(items: int, engine: str, asynchronous: bool) -> tuple[Callable[[], object], StepAndSave]:
    import runhooks as rh
    from bench import saving

    with rh.Graph(engine=engine).as_default() as graph:
        variable = rh.Variable(saving.state(items), name="state")
        train_op = rh.group(variable.assign(rh.call(saving.step, variable)))
    session, saver = rh.Session(graph), rh.Saver(asynchronous=asynchronous)

    def make_step() -> None:
        session.run(train_op)
        session.wait()

    def save(folder: Path) -> None:
        saver.save(session, folder / "model.ckpt")
        make_step()
        saver.wait()

    return make_step, save


def ours_torch(items: int, asynchronous: bool) -> tuple[Callable[[], object], StepAndSave]:
    import torch

    import runhooks as rh

    model = _module(items)

    def train_step() -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)

    session = rh.Session(rh.torch.graph(train_step, model=model))
    saver = rh.Saver(asynchronous=asynchronous)

    def save(folder: Path) -> None:
        saver.save(session, folder / "model.ckpt")
        session.run("train_op")
        saver.wait()

    return lambda: session.run("train_op"), save


def torch_save(items: int) -> tuple[Callable[[], object], StepAndSave]:
    import torch

    model = _module(items)

    def save(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        torch.save(model.state_dict(), folder / "state.pt")

    return lambda: None, save


def orbax(items: int) -> tuple[Callable[[], object], StepAndSave]:
    import jax
    import orbax.checkpoint as ocp

    from bench import saving

    step = jax.jit(saving.step, donate_argnums=0)
    values: list[Any] = [jax.tree.map(jax.numpy.array, saving.state(items))]
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def make_step() -> None:
        values[0] = {name: it.block_until_ready() for name, it in step(values[0]).items()}

    def save(folder: Path) -> None:
        checkpointer.save(folder, args=ocp.args.StandardSave(values[0]), force=True)
        make_step()
        checkpointer.wait_until_finished()

    return make_step, save


def _module(items: int) -> Any:
    import torch

    from bench import saving

    return torch.nn.ParameterDict(
        {
            name: torch.nn.Parameter(torch.from_numpy(array), requires_grad=False)
            for name, array in saving.state(items).items()
        }
    )


MADE: dict[str, Callable[[int], tuple[Callable[[], object], StepAndSave]]] = {
    "runhooks, python engine": lambda items: ours(items, "python", False),
    "runhooks, jax engine": lambda items: ours(items, "jax", False),
    "runhooks, torch engine": lambda items: ours_torch(items, False),
    "runhooks, asynchronous, python engine": lambda items: ours(items, "python", True),
    "runhooks, asynchronous, jax engine": lambda items: ours(items, "jax", True),
    "runhooks, asynchronous, torch engine": lambda items: ours_torch(items, True),
    "torch.save": torch_save,
    "orbax AsyncCheckpointer": orbax,
}
PEERS = {"torch.save": "runhooks, torch engine", "orbax AsyncCheckpointer": list(MADE)[4]}
STATE = "the state"
#: Where to say that VmHWM is to count from now on.
PEAK = Path("/proc/self/clear_refs")


def megabytes(name: str) -> float:
    """Return VmRSS, what the process has, or VmHWM, what it has had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1.024e-3


def peak(name: str, items: int) -> float:
    """Return how many megabytes saving takes beyond the state, in this process."""
    step, save = MADE[name](items)
    step()
    PEAK.write_text("5")
    for _ in range(SAVES):
        step()
    before = megabytes("VmHWM")
    PEAK.write_text("5")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(SAVES):
            save(Path(folder) / str(number % 2))
            step()
    return megabytes("VmHWM") - before


def tables(effort: Effort) -> Iterator[Table]:
    from bench.saving import PART_ITEMS, PARTS

    items = effort.amount(PART_ITEMS)
    peaks: dict[str, list[float]] = {STATE: [items * PARTS * np.float32().nbytes / 1e6]}
    for name in MADE:
        command = [sys.executable, "-m", "bench.saving_memory", name, str(items)]
        root = Path(__file__).parents[1]
        done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
        peaks[name] = [float(done.stdout)]
    contenders = [
        Contender(STATE, print, role="limit"),
        *(
            Contender(name, print, role="peer" if name in PEERS else "ours", beside=PEERS.get(name))
            for name in MADE
        ),
    ]
    yield tabulated(f"a state of {peaks[STATE][0]:,.0f} MB", "MB", contenders, peaks)


if __name__ == "__main__":
    print(peak(sys.argv[1], int(sys.argv[2])))
