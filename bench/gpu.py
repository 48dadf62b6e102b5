"""What the topics of a GPU share: programs, each as a plain loop and under hooks.

Without a GPU the same runs on the processor, with less of everything.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import runhooks as rh
from bench.measure import NEVER, Contender

EXAMPLES = Path(__file__).parents[1] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.append(str(EXAMPLES))  # its programs are imported

PLAIN, SLEEPING = "plain loop", "five hooks, none due"
CURVES, SAVES = 50, 200  # steps between two
AWAKE = f"curves every {CURVES} steps, a checkpoint every {SAVES}"

Amount = TypeVar("Amount")


class Training(NamedTuple):
    """A training that goes on: ``step`` makes a step, ``wait`` waits until the device has."""

    step: Callable[[], object]
    wait: Callable[[], object]

    def loop(self, times: int) -> None:
        """Make steps, and wait for them once."""
        step = self.step
        for _ in range(times):
            step()
        self.wait()

    def secs(self, times: int) -> float:
        begin = time.perf_counter()
        self.loop(times)
        return time.perf_counter() - begin


class Program(NamedTuple):
    """A program under one framework: ``plain`` begins it by hand, ``graph`` is what hooks get."""

    framework: str
    device: str
    plain: Callable[[], Training]
    graph: Callable[[], Any]

    @property
    def where(self) -> str:
        return f"{self.framework} on {self.device}"

    def hooked(self, curves: int = NEVER, saves: int = NEVER) -> Training:
        """Begin it under five hooks: curves with their evaluation, a log, checkpoints, the end."""
        with self.graph().as_default():
            session: Any = rh.MonitoredTrainingSession(
                checkpoint_dir=tempfile.mkdtemp(),
                hooks=[
                    rh.StopAtStepHook(last_step=NEVER),
                    rh.LoggingTensorHook(["loss"], every_n_iter=curves),
                ],
                save_checkpoint_steps=saves,
                save_summaries_steps=curves,
                log_step_count_steps=curves,
                saver=rh.Saver(asynchronous=True),
            )
        alone = session.run_step_fn(lambda step_context: step_context.session)
        return Training(partial(session.run, "train_op"), alone.wait)

    def kinds(self) -> dict[str, Callable[[], Training]]:
        """Return how to begin it in each way, by the name of its row."""
        return {
            PLAIN: self.plain,
            SLEEPING: self.hooked,
            AWAKE: partial(self.hooked, CURVES, SAVES),
        }


def beside_plain(
    loops: Mapping[str, Callable[[Any], Any]], budget: float | None = None
) -> list[Contender]:
    """Return the plain loop, and the others over it."""
    return [
        Contender(name, loop, role="limit")
        if name == PLAIN
        else Contender(name, loop, PLAIN, budget)
        for name, loop in loops.items()
    ]


def sized(device: str, full: Amount, on_cpu: Amount) -> Amount:
    return on_cpu if device == "cpu" else full


def jax_device() -> str:
    import jax

    return jax.default_backend()


def torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def jax_wait(values: Any) -> None:
    import jax

    jax.block_until_ready(values)  # type: ignore[no-untyped-call]


def torch_wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
