"""A training step in PyTorch: in a bare loop, in a session with five hooks, and in other libraries.

There are two steps: a trivial one, which shows what the loop costs, and one of the size of the
digits example, which puts that cost in proportion. No hook is due during the measurement.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

import runhooks as rh
from bench import torch_peers
from bench.measure import NEVER, Contender, Effort, Loop
from bench.sessions import Asks
from bench.table import Table, measured

FETCHED = (
    "A list is returned beside the session itself, and the loss is found by name in every run: "
    "a step may return another dict each time."
)

SEEN = (
    "Three Python calls, two locks and the batch, which is fed; and a session sees which "
    "optimizers have applied their gradients, and whether a module was left in evaluation mode."
)

LATE = "It is called with the value of the run before."

ASKED = "The hook may keep its context and its values, so that each run makes them anew."


class Work(NamedTuple):
    """A program of somebody's: its step, what the step is called with, and what it changes."""

    step: Callable[..., dict[str, torch.Tensor]]
    batch: dict[str, torch.Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


def trivial() -> Work:
    """Two updates in place: the least that a step can be."""
    model = nn.Module()
    model.register_buffer("weights", torch.zeros(8))
    weights, loss = model.get_buffer("weights"), torch.ones(())

    def step(batch: torch.Tensor) -> dict[str, torch.Tensor]:
        weights.add_(batch)
        loss.mul_(0.9)
        return {"loss": loss}

    return Work(step, {"batch": torch.ones(8)}, model, torch.optim.SGD([torch.zeros(8)]))


def digits() -> Work:
    """The network of ``examples/digits_torch.py``."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(512, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    batch = {"images": torch.rand(64, 1, 8, 8), "labels": torch.randint(10, (64,))}
    return Work(step, batch, model, optimizer)


def bare(work: Work) -> Loop:
    step, batch = work.step, tuple(work.batch.values())

    def loop(times: int) -> None:
        for _ in range(times):
            step(*batch)

    return loop


def monitored_session(work: Work) -> Loop:
    """The five hooks are those of ``MonitoredTrainingSession``, and two of the user's."""
    graph = rh.torch.graph(work.step, outputs=["loss"], model=work.model, optimizer=work.optimizer)
    with graph.as_default():
        rh.summary.scalar("loss", graph["loss"])
        session = rh.MonitoredTrainingSession(
            checkpoint_dir=tempfile.mkdtemp(),
            hooks=[
                rh.StopAtStepHook(last_step=NEVER),
                rh.LoggingTensorHook(["loss"], every_n_iter=NEVER),
            ],
            save_checkpoint_steps=NEVER,
            save_summaries_steps=NEVER,
            log_step_count_steps=NEVER,
        )
    return feeding(session, work.batch)


def feeding(session: rh.MonitoredSession, batch: dict[str, torch.Tensor]) -> Loop:
    def loop(times: int) -> None:
        run = session.run
        for _ in range(times):
            run("train_op", batch)

    return loop


def with_its_loss(work: Work) -> Loop:
    step, batch = work.step, tuple(work.batch.values())

    def loop(times: int) -> None:
        for _ in range(times):
            step(*batch)["loss"].detach().clone()

    return loop


def reading_session(hooks: Sequence[rh.SessionRunHook], fetches: str | list[str]) -> Loop:
    work = trivial()
    graph = rh.torch.graph(work.step, outputs=["loss"], model=work.model, optimizer=work.optimizer)
    with graph.as_default():
        session = rh.MonitoredSession(hooks=hooks)
    batch = work.batch

    def loop(times: int) -> None:
        run = session.run
        for _ in range(times):
            run(fetches, batch)

    return loop


def readers() -> list[Contender]:
    """Who wants the loss of each step gets a copy, which the next step does not change."""
    alone, late = (
        "PyTorch, bare loop with a copy of the loss",
        rh.NanTensorHook("loss:0", late=True),
    )
    fetched, loss = "session, loss fetched by the loop", ["train_op", "loss"]
    asking = reading_session([Asks("loss:0")], "train_op")
    return [
        Contender(alone, with_its_loss(trivial()), role="limit"),
        Contender(fetched, reading_session([], loss), alone, 1.5, why=FETCHED),
        Contender("a hook asks for it", asking, fetched, 1.0, why=ASKED),
        Contender(
            "NanTensorHook(late=True)",
            reading_session([late], "train_op"),
            fetched,
            1.0,
            why=LATE,
        ),
    ]


def contenders(make: Callable[[], Work], budget: float | None = None) -> list[Contender]:
    """Each with a model of its own; all over the bare loop, to which ours may add ``budget``."""
    torch.set_num_threads(1)
    alone = "PyTorch, bare loop"
    return [
        Contender(alone, bare(make()), role="limit"),
        Contender(
            "session, five hooks, none due", monitored_session(make()), alone, budget, why=SEEN
        ),
        Contender("ignite: five handlers, none due", ignite(make()), alone, role="peer"),
        Contender("Lightning: five callbacks, none due", lightning(make()), alone, role="peer"),
        Contender("Keras: five callbacks, none due", keras(make()), alone, role="peer"),
    ]


def ignite(work: Work) -> Loop:
    parts = {"model": work.model, "optimizer": work.optimizer}
    return torch_peers.ignite(work.step, tuple(work.batch.values()), parts)


def lightning(work: Work) -> Loop:
    return torch_peers.lightning(work.step, tuple(work.batch.values()), work.optimizer)


def keras(work: Work) -> Loop:
    return torch_peers.keras(work.step, tuple(work.batch.values()))


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("PyTorch, a trivial step", contenders(trivial, 1.5), effort, 51, 300)
    yield measured("PyTorch, a trivial step whose loss is read", readers(), effort, 51, 300)
    yield measured("PyTorch, a step of the digits", contenders(digits), effort, 51, 10)
