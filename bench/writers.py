"""Writing summaries to files, compared with TensorFlow, TensorBoard, torch and tensorboardX."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
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

from bench.measure import Contender, Effort, Loop, Role, alternate, repeated
from bench.table import Table, measured, tabulated
from runhooks import summary

v1 = tf.compat.v1

LIMIT = "ready records into a file, then fsync"
TAGS = [f"train/loss/{number}" for number in range(20)]


class Writer(NamedTuple):
    """One that writes to ``folder``: ``scalar(tag, value, step)``, and ``close`` to have all there.

    ``amount``: of scalars, with which it is busy for about a second.
    """

    folder: Path
    scalar: Callable[[str, float, int], object]
    close: Callable[[], object]
    amount: int = 30_000


def ours() -> Writer:
    folder = tempfile.mkdtemp()
    writer = summary.FileWriter(folder)
    return Writer(Path(folder), writer.scalar, writer.close, amount=1_000_000)


def records() -> Writer:
    """What every writer comes down to: its records, made beforehand, into a file."""
    folder = Path(tempfile.mkdtemp())
    path, places = folder / "events.out.tfevents.0.limit", [0]
    with summary.FileWriter(folder) as writer:
        for tag in TAGS:
            writer.scalar(tag, 0.5, 0)
    (made,) = folder.iterdir()
    data = made.read_bytes()
    made.unlink()
    while places[-1] < len(data):  # a length, its checksum, as many bytes, theirs
        places.append(places[-1] + int.from_bytes(data[places[-1] :][:8], "little") + 16)
    version, *ready = (data[begin:end] for begin, end in itertools.pairwise(places))
    of_tag = dict(zip(TAGS, ready, strict=True))
    file = path.open("wb")
    file.write(version)

    def close() -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    return Writer(folder, lambda tag, value, step: file.write(of_tag[tag]), close, 1_000_000)


def tensorflow() -> Writer:
    folder = tempfile.mkdtemp()
    writer = tensorflow_writer(folder)

    def scalar(tag: str, value: float, step: int) -> None:
        entry = v1.Summary.Value(tag=tag, simple_value=value)
        writer.add_summary(v1.Summary(value=[entry]), step)

    return Writer(Path(folder), scalar, writer.close, amount=60_000)


def tensorboard() -> Writer:
    folder = tempfile.mkdtemp()
    writer = EventFileWriter(folder)

    def scalar(tag: str, value: float, step: int) -> None:
        entry = TensorBoardSummary.Value(tag=tag, simple_value=value)
        writer.add_event(
            Event(wall_time=time.time(), step=step, summary=TensorBoardSummary(value=[entry]))
        )

    return Writer(Path(folder), scalar, writer.close)


def torch() -> Writer:
    folder = tempfile.mkdtemp()
    writer: Any = TorchWriter(folder)
    return Writer(Path(folder), writer.add_scalar, writer.close, 10_000)


def tensorboardx() -> Writer:
    folder = tempfile.mkdtemp()
    writer = tensorboardX.SummaryWriter(folder)
    return Writer(Path(folder), writer.add_scalar, writer.close, 10_000)


WRITERS: dict[str, Callable[[], Writer]] = {
    LIMIT: records,
    "runhooks": ours,
    "TensorFlow's FileWriter": tensorflow,
    "TensorBoard's EventFileWriter": tensorboard,
    "torch's SummaryWriter": torch,
    "tensorboardX": tensorboardx,
}


def role_of(name: str) -> Role:
    return "ours" if name == "runhooks" else "limit" if name == LIMIT else "peer"


def adding(scalar: Callable[[str, Any, int], object], value: Any) -> Loop:
    def loop(times: int) -> None:
        for step in range(times):
            scalar("loss", value, step)

    return loop


def scalars() -> list[Contender]:
    """Add a scalar and go on: the writer's thread does the rest, and contends for the cores."""
    return [
        Contender(name, adding(make().scalar, 0.5), role=role_of(name))
        for name, make in WRITERS.items()
        if name != LIMIT
    ]


def scalars_of_arrays() -> list[Contender]:
    """Add a number that is an array, as a loss is: of JAX, computed by now, and of PyTorch."""
    writer, theirs = summary.FileWriter(tempfile.mkdtemp()), torch()
    of_jax = (jnp.float32(0.25) * 2).block_until_ready()
    of_torch = pytorch.tensor(0.5)

    return [
        Contender("runhooks, a float", adding(writer.scalar, 0.5)),
        Contender("runhooks, of JAX", adding(writer.scalar, of_jax), "runhooks, a float", 2.0),
        Contender("runhooks, of torch", adding(writer.scalar, of_torch), "runhooks, a float", 2.0),
        Contender(
            "torch's SummaryWriter, of torch",
            adding(theirs.scalar, of_torch),
            role="peer",
            beside="runhooks, of torch",
        ),
    ]


def closed_files(effort: Effort) -> Iterator[Table]:
    """How fast scalars get into a file that is closed, and was read back to be sure."""
    contenders = [
        Contender(name, partial(sustained, make), role=role_of(name))
        for name, make in WRITERS.items()
    ]
    returned = alternate(contenders, effort.turns(5), effort)
    for column, what in enumerate(("to a closed file", "of that, taken from the caller")):
        rounds = {name: [costs[column] for costs in turns] for name, turns in returned.items()}
        yield tabulated(f"a scalar of {len(TAGS)} tags, {what}", "µs", contenders, rounds)


def sustained(make: Callable[[], Writer], effort: Effort) -> tuple[float, float]:
    """Return microseconds a scalar, until the file is closed and until the caller goes on."""
    writer = make()
    scalar, count, tags = writer.scalar, effort.amount(writer.amount), TAGS
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
        raise ValueError(f"{found - 1} of {count} scalars are in {path}")
    return (end - begin) / count * 1e6, (added - begin) / count * 1e6


def histograms() -> list[Contender]:
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    writer, theirs = summary.FileWriter(tempfile.mkdtemp()), tensorboardx_writer()

    def write_ours() -> None:
        writer.histogram("weights", values, 1)
        writer.flush()

    def count() -> None:
        np.bincount(values.view(np.uint16)[1::2], minlength=1 << 16)
        values.min(), values.max(), values.sum(), values.dot(values)

    def write_theirs() -> None:
        theirs.add_histogram("weights", values, 1)
        theirs.flush()

    return [
        Contender("np.bincount of its halves, min, max, sum, dot", repeated(count), role="limit"),
        Contender("runhooks", repeated(write_ours)),
        Contender("tensorboardX", repeated(write_theirs), role="peer"),
        Contender(
            "TensorFlow's summary op", tensorflow_op(v1.summary.histogram, values), role="peer"
        ),
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
        Contender("tensorboardX", repeated(write_theirs), role="peer"),
        Contender(
            "TensorFlow's summary op", tensorflow_op(v1.summary.image, values[None]), role="peer"
        ),
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


def tensorboardx_writer() -> Any:
    return tensorboardX.SummaryWriter(tempfile.mkdtemp())


def tensorflow_writer(folder: str) -> Any:
    with tf.Graph().as_default():
        return v1.summary.FileWriter(folder)


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("a scalar, as the caller's thread sees it", scalars(), effort, 51, 300)
    yield measured("a scalar that is an array", scalars_of_arrays(), effort, 51, 300)
    yield from closed_files(effort)
    title = "a histogram of a million float32, to the file"
    yield measured(title, histograms(), effort, 11, 2)
    yield measured("an image 256x256x3, to the file", images(), effort, 11, 5)
