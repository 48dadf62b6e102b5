"""The methods of a ``SummaryWriter``, compared with those of torch and tensorboardX."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorboardX
import torch
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from bench.measure import Contender, Effort, Loop, repeated
from bench.table import Table, measured
from bench.writers import photograph
from runhooks.tensorboard import EventAccumulator, SummaryWriter

Call = Callable[[Any, int], object]

#: Each with how many rounds, and how many calls a round.
ROUNDS = {
    "add_scalar, as the caller's thread sees it": (21, 2000),
    "add_scalar of a tensor": (21, 300),
    "add_scalars of four": (21, 100),
    "add_histogram of a million float32": (7, 2),
    "add_image of 256x256x3": (7, 5),
    "add_images of 32x3x64x64, floats": (7, 5),
    "add_embedding of 1,000 x 64 with pictures": (5, 1),
    "add_video of 4x16x3x64x64": (5, 1),
}


def methods() -> dict[str, list[Contender]]:
    """What is measured, by name as in ``ROUNDS``; all but scalars are flushed at each call."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=1_000_000).astype(np.float32)
    picture = photograph()
    batch = rng.random((32, 3, 64, 64), np.float32)
    points = rng.random((1000, 64), np.float32)
    labels = list(map(str, range(1000)))
    pictures = torch.rand(1000, 3, 16, 16)
    video = rng.integers(0, 256, (4, 16, 3, 64, 64), np.uint8)
    tensor = torch.tensor(0.5)
    group = dict.fromkeys("abcd", 0.5)
    unflushed: list[Call] = [
        lambda writer, step: writer.add_scalar("loss", 0.5, step),
        lambda writer, step: writer.add_scalar("loss", tensor, step),
        lambda writer, step: writer.add_scalars("group", group, step),
    ]
    flushed: list[Call] = [
        lambda writer, step: writer.add_histogram("weights", numbers, step),
        lambda writer, step: writer.add_image("picture", picture, step, dataformats="HWC"),
        lambda writer, step: writer.add_images("batch", batch, step),
        lambda writer, step: writer.add_embedding(points, labels, pictures, time.time_ns()),
        lambda writer, step: writer.add_video("video", video, step),
    ]
    loops = [*map(adding, unflushed), *map(flushing, flushed)]
    return {
        name: [
            Contender(writer, make(opened), role="ours" if writer == "runhooks" else "peer")
            for writer, opened in writers(needs_moviepy="add_video" in name)
        ]
        for name, make in zip(ROUNDS, loops, strict=True)
    }


def writers(needs_moviepy: bool) -> list[tuple[str, Any]]:
    """Ours, and theirs if they can do it: without moviepy they write no video."""
    ours: list[tuple[str, Any]] = [("runhooks", SummaryWriter(tempfile.mkdtemp()))]
    if needs_moviepy and importlib.util.find_spec("moviepy") is None:
        return ours
    torchs: Any = TorchWriter(tempfile.mkdtemp())
    tensorboardxs = tensorboardX.SummaryWriter(tempfile.mkdtemp())
    return [*ours, ("torch's", torchs), ("tensorboardX's", tensorboardxs)]


def adding(call: Call) -> Callable[[Any], Loop]:
    def make(writer: Any) -> Loop:
        def loop(times: int) -> None:
            for step in range(times):
                call(writer, step)

        return loop

    return make


def flushing(call: Call) -> Callable[[Any], Loop]:
    def make(writer: Any) -> Loop:
        def once() -> None:
            call(writer, 1)
            writer.flush()

        return repeated(once)

    return make


def reading(points: int, tags: int = 20) -> list[Contender]:
    """Read scalars of many tags, all of them, to a list of values each."""
    folder = tempfile.mkdtemp()
    names = [f"train/loss/{number}" for number in range(tags)]
    with SummaryWriter(folder) as writer:
        for step in range(points // tags):
            for name in names:
                writer.add_scalar(name, 0.5, step)
    from tensorboard.backend.event_processing import event_accumulator as theirs

    def ours() -> None:
        check(EventAccumulator(folder).Reload())

    def tensorboards() -> None:
        everything = theirs.STORE_EVERYTHING_SIZE_GUIDANCE
        check(theirs.EventAccumulator(folder, everything).Reload())

    def check(accumulator: Any) -> None:
        found = sum(len(accumulator.Scalars(name)) for name in names)
        if found != points // tags * tags:
            raise ValueError(f"{found} of {points} scalars were read from {Path(folder)}")

    return [
        Contender("runhooks", repeated(ours)),
        Contender("TensorBoard's EventAccumulator", repeated(tensorboards), role="peer"),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    for name, contenders in methods().items():
        yield measured(f"SummaryWriter.{name}", contenders, effort, *ROUNDS[name])
    points = effort.amount(200_000)
    title = f"EventAccumulator, {points:,} scalars of 20 tags"
    yield measured(title, reading(points), effort, 3, 1)
