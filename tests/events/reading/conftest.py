"""Event files made of TensorBoard's protobufs, so that what reads them is not what wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.events import Message, frame

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Append messages, or bytes as they are, to an event file of the test."""

    def write(*parts: Message | bytes, name: str = "events.out.tfevents.1") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for part in parts:
                file.write(part if isinstance(part, bytes) else frame(part.SerializeToString()))
        return path

    return write


@pytest.fixture
def scalar() -> Callable[..., event_pb2.Event]:
    """Make an event that holds a scalar, at the second of its step."""

    def scalar(tag: str, value: float, step: int, wall_time: float | None = None) -> Any:
        seconds = float(step) if wall_time is None else wall_time
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value)]
        summary = summary_pb2.Summary(value=values)
        return event_pb2.Event(wall_time=seconds, step=step, summary=summary)

    return scalar


@pytest.fixture
def start() -> Callable[[int], event_pb2.Event]:
    """Make the event of a session that starts at a step."""

    def start(step: int) -> Any:
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        return event_pb2.Event(step=step, session_log=log)

    return start


@pytest.fixture
def tensorboard() -> Callable[[Path], EventAccumulator]:
    """Read a directory as TensorBoard does, all points kept."""

    def read(path: Path) -> EventAccumulator:
        kinds = ("scalars", "histograms", "compressedHistograms", "images", "audio", "tensors")
        accumulator = EventAccumulator(str(path), dict.fromkeys(kinds, 0))
        accumulator.Reload()
        return accumulator

    return read
