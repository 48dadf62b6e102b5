"""Summaries into event files, beside TensorFlow, TensorBoard, torch and tensorboardX."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import tensorboardX
import tensorflow as tf
import torch as pytorch
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary as TensorBoardSummary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from bench.measure import Contender, Loop
from runhooks import summary

v1 = tf.compat.v1

TAGS = [f"train/loss/{number}" for number in range(20)]


class Writer(NamedTuple):
    """One that writes to ``folder``: ``scalar(tag, value, step)``, and ``close`` to have all there.

    ``amount``: of scalars, with which it is busy for about a second.
    """

    name: str
    folder: Path
    scalar: Callable[[str, float, int], object]
    close: Callable[[], object]
    amount: int = 30_000


def ours() -> Writer:
    folder = tempfile.mkdtemp()
    writer = summary.FileWriter(folder)
    return Writer("runhooks", Path(folder), writer.scalar, writer.close, amount=1_000_000)


def tensorflow() -> Writer:
    folder = tempfile.mkdtemp()
    writer = tensorflow_writer(folder)

    def scalar(tag: str, value: float, step: int) -> None:
        entry = v1.Summary.Value(tag=tag, simple_value=value)
        writer.add_summary(v1.Summary(value=[entry]), step)

    return Writer("TensorFlow's FileWriter", Path(folder), scalar, writer.close, amount=60_000)


def tensorboard() -> Writer:
    folder = tempfile.mkdtemp()
    writer = EventFileWriter(folder)

    def scalar(tag: str, value: float, step: int) -> None:
        entry = TensorBoardSummary.Value(tag=tag, simple_value=value)
        writer.add_event(
            Event(wall_time=time.time(), step=step, summary=TensorBoardSummary(value=[entry]))
        )

    return Writer("TensorBoard's EventFileWriter", Path(folder), scalar, writer.close)


def torch() -> Writer:
    folder = tempfile.mkdtemp()
    writer: Any = TorchWriter(folder)
    return Writer("torch's SummaryWriter", Path(folder), writer.add_scalar, writer.close, 10_000)


def tensorboardx() -> Writer:
    folder = tempfile.mkdtemp()
    writer = tensorboardX.SummaryWriter(folder)
    return Writer("tensorboardX", Path(folder), writer.add_scalar, writer.close, 10_000)


WRITERS = [ours, tensorflow, tensorboard, torch, tensorboardx]


def scalars() -> list[Contender]:
    """Add a scalar and go on: the writer's thread does the rest, and contends for the cores."""
    writers = [make() for make in WRITERS]

    def adding(writer: Writer) -> Loop:
        def loop(times: int) -> None:
            scalar = writer.scalar
            for step in range(times):
                scalar("loss", 0.5, step)

        return loop

    return [Contender(writer.name, adding(writer)) for writer in writers]


def scalars_of_arrays() -> list[Contender]:
    """Add a number that is an array, as a loss is: of JAX, computed by now, and of PyTorch."""
    writer, theirs = summary.FileWriter(tempfile.mkdtemp()), torch()
    of_jax = (jnp.float32(0.25) * 2).block_until_ready()
    of_torch = pytorch.tensor(0.5)

    def adding(scalar: Callable[[str, Any, int], object], value: Any) -> Loop:
        def loop(times: int) -> None:
            for step in range(times):
                scalar("loss", value, step)

        return loop

    return [
        Contender("runhooks, a float", adding(writer.scalar, 0.5)),
        Contender("runhooks, of JAX", adding(writer.scalar, of_jax), "runhooks, a float", 2.0),
        Contender("runhooks, of torch", adding(writer.scalar, of_torch), "runhooks, a float", 2.0),
        Contender("torch's SummaryWriter, of torch", adding(theirs.scalar, of_torch)),
    ]


def show_sustained(turns: int) -> None:
    """Print how fast scalars get into a file that is closed, and was read back to be sure."""
    print(f"\nscalars of {len(TAGS)} tags to a closed file: medians of {turns} turns")
    print(f"{'':32}{'a second':>12}{'ratio':>8}{'caller, us':>12}")
    speeds: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    for _ in range(turns):
        for make in WRITERS:
            writer = make()
            speed, wait = sustained(writer)
            speeds.setdefault(writer.name, []).append(speed)
            waits.setdefault(writer.name, []).append(wait)
    best = statistics.median(speeds["runhooks"])
    for name in speeds:
        speed = statistics.median(speeds[name])
        wait = statistics.median(waits[name])
        print(f"{name:32}{speed:12,.0f}{best / speed:8.1f}{wait:12.2f}", flush=True)


def sustained(writer: Writer) -> tuple[float, float]:
    """Return scalars a second, and microseconds that a scalar takes of the loop that adds it."""
    scalar, count, tags = writer.scalar, writer.amount, TAGS
    begin = time.perf_counter()
    for step in range(count // len(tags)):
        for tag in tags:
            scalar(tag, 0.5, step)
    added = time.perf_counter()
    writer.close()
    end = time.perf_counter()
    (path,) = writer.folder.iterdir()
    found = sum(1 for _ in RawEventFileLoader(str(path)).Load())
    if found != count + 1:  # and the version of the file
        raise ValueError(f"{writer.name} has written {found - 1} of {count} scalars")
    return count / (end - begin), (added - begin) / count * 1e6


def histograms() -> list[Contender]:
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    writer, theirs = summary.FileWriter(tempfile.mkdtemp()), tensorboardx_writer()

    def write_ours() -> None:
        writer.histogram("weights", values, 1)
        writer.flush()

    def write_theirs() -> None:
        theirs.add_histogram("weights", values, 1)
        theirs.flush()

    return [
        Contender("runhooks", repeated(write_ours)),
        Contender("tensorboardX", repeated(write_theirs)),
        Contender("TensorFlow's summary op", tensorflow_op(v1.summary.histogram, values)),
    ]


def images() -> list[Contender]:
    """A smooth picture with a little noise, as a photograph has."""
    values = photograph()
    writer, theirs = summary.FileWriter(tempfile.mkdtemp()), tensorboardx_writer()

    def write_ours() -> None:
        writer.image("photograph", values, 1)
        writer.flush()

    def write_theirs() -> None:
        theirs.add_image("photograph", values, 1, dataformats="HWC")
        theirs.flush()

    return [
        Contender("runhooks", repeated(write_ours)),
        Contender("tensorboardX", repeated(write_theirs)),
        Contender("TensorFlow's summary op", tensorflow_op(v1.summary.image, values[None])),
    ]


def photograph() -> NDArray[np.uint8]:
    y, x = np.mgrid[0:256, 0:256] / 40
    smooth = np.stack([np.sin(x + y), np.cos(x * y / 4), np.sin(x)], axis=-1)
    noise = np.random.default_rng(0).normal(scale=0.02, size=smooth.shape)
    return np.clip((smooth + noise) * 60 + 128, 0, 255).astype(np.uint8)


def tensorflow_op(op: Callable[..., Any], values: NDArray[Any]) -> Loop:
    writer = tensorflow_writer(tempfile.mkdtemp())
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(values.dtype, values.shape)
        value = op("values", fed)
    session = v1.Session(graph=graph)

    def write() -> None:
        writer.add_summary(session.run(value, {fed: values}), 1)
        writer.flush()

    return repeated(write)


def repeated(once: Callable[[], None]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            once()

    return loop


def tensorboardx_writer() -> Any:
    return tensorboardX.SummaryWriter(tempfile.mkdtemp())


def tensorflow_writer(folder: str) -> Any:
    with tf.Graph().as_default():
        return v1.summary.FileWriter(folder)
