"""Summaries into event files: what the caller waits for, beside TensorFlow and TensorBoard."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary as TensorBoardSummary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from bench.measure import Contender, Loop
from runhooks import summary

v1 = tf.compat.v1


def repeated(once: Callable[[], None]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            once()

    return loop


def scalars() -> list[Contender]:
    """Add a scalar and go on: the writer's thread does the rest, and contends for the cores."""
    ours = summary.FileWriter(tempfile.mkdtemp())
    theirs = tensorflow_writer()
    board = EventFileWriter(tempfile.mkdtemp())

    def add_ours() -> None:
        ours.add_summary(summary.Summary([summary.scalar_value("loss", 0.5)]), 1)

    def add_theirs() -> None:
        theirs.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=0.5)]), 1)

    def add_board() -> None:
        value = TensorBoardSummary.Value(tag="loss", simple_value=0.5)
        board.add_event(
            Event(wall_time=time.time(), step=1, summary=TensorBoardSummary(value=[value]))
        )

    return [
        Contender("runhooks", repeated(add_ours)),
        Contender("TensorBoard's writer", repeated(add_board)),
        Contender("TensorFlow's FileWriter", repeated(add_theirs)),
    ]


def histograms() -> list[Contender]:
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    return to_the_file(
        lambda: summary.histogram_value("weights", values), v1.summary.histogram, values
    )


def images() -> list[Contender]:
    """A smooth picture with a little noise, as a photograph has."""
    y, x = np.mgrid[0:256, 0:256] / 40
    smooth = np.stack([np.sin(x + y), np.cos(x * y / 4), np.sin(x)], axis=-1)
    noise = np.random.default_rng(0).normal(scale=0.02, size=smooth.shape)
    values = np.clip((smooth + noise) * 60 + 128, 0, 255).astype(np.uint8)[None]
    return to_the_file(lambda: summary.image_value("digits", values), v1.summary.image, values)


def to_the_file(
    our_value: Callable[[], summary.Value], their_op: Callable[..., Any], values: Any
) -> list[Contender]:
    ours, theirs = summary.FileWriter(tempfile.mkdtemp()), tensorflow_writer()
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(values.dtype, values.shape)
        op = their_op("values", fed)
    session = v1.Session(graph=graph)

    def write_ours() -> None:
        ours.add_summary(summary.Summary([our_value()]), 1)
        ours.flush()

    def write_theirs() -> None:
        theirs.add_summary(session.run(op, {fed: values}), 1)
        theirs.flush()

    return [
        Contender("runhooks", repeated(write_ours)),
        Contender("TensorFlow's summary op and FileWriter", repeated(write_theirs)),
    ]


def tensorflow_writer() -> Any:
    with tf.Graph().as_default():
        return v1.summary.FileWriter(tempfile.mkdtemp())
