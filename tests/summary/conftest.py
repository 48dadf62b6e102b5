"""TensorBoard's own readers, as what decides whether a file is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import summary_pb2

from runhooks.events import Message
from runhooks.summary import FileWriter, Summary, Value, Writer

Load = Callable[[], list[Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """All events of the folder of the test, as TensorBoard's loader reads them."""

    def load() -> list[Any]:
        paths = sorted(tmp_path.glob("*.tfevents.*"))
        return [event for path in paths for event in EventFileLoader(str(path)).Load()]

    return load


@pytest.fixture
def accumulate(tmp_path: Path) -> Callable[..., EventAccumulator]:
    """Write values at step 7, and read the folder of the test as TensorBoard does."""

    def accumulate(*values: Value) -> EventAccumulator:
        with FileWriter(tmp_path) as writer:
            writer.add_summary(Summary(values), 7)
        # 0: keep all, where the default is to drop some.
        kinds = ("scalars", "histograms", "images", "tensors")
        accumulator = EventAccumulator(str(tmp_path), dict.fromkeys(kinds, 0))
        accumulator.Reload()
        return accumulator

    return accumulate


class Late:
    """An array of an unknown library: what is in it comes out only when it is read."""

    def __init__(self, values: object) -> None:
        self._values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.asarray(self._values)


class KeptSummaries(Writer):
    """Keeps what is written as TensorBoard's messages, encoded when it is asked for."""

    def __init__(self) -> None:
        self.steps: list[int | None] = []
        self._summaries: list[Message] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        assert not isinstance(summary, bytes)
        self._summaries.append(summary)
        self.steps.append(global_step)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._closed = True

    @property
    def values(self) -> list[Any]:
        messages = [summary.SerializeToString() for summary in self._summaries]
        return [v for message in messages for v in summary_pb2.Summary.FromString(message).value]

    @property
    def value(self) -> Any:
        (value,) = self.values
        return value


@pytest.fixture
def writer() -> KeptSummaries:
    """A writer that keeps what it is given."""
    return KeptSummaries()


@pytest.fixture
def tensorflows_op() -> Callable[[Callable[[], Any]], list[Any]]:
    """The values that a summary op of TensorFlow 1 makes."""

    def values(make_op: Callable[[], Any]) -> list[Any]:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return list(summary_pb2.Summary.FromString(session.run(make_op())).value)

    return values


@pytest.fixture
def tensorflows_writer(tmp_path: Path) -> Callable[[Callable[[], Any]], Any]:
    """The one value that a ``tf.summary`` function of TensorFlow 2 writes."""

    def value(write: Callable[[], Any]) -> Any:
        with tf.summary.create_file_writer(str(tmp_path / "tensorflow")).as_default(step=7):
            write()
        (path,) = (tmp_path / "tensorflow").iterdir()
        events = list(tf.compat.v1.train.summary_iterator(str(path)))
        return summary_pb2.Summary.FromString(events[-1].summary.SerializeToString()).value[0]

    return value
