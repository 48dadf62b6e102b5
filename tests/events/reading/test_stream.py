"""Points one by one, of files that may still be growing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.events import Histogram, SessionLog, StreamPoint, stream

Write = Callable[..., Path]
Make = Callable[..., Any]


def histogram(step: int) -> Any:
    histo = summary_pb2.HistogramProto(num=1, bucket_limit=[1.0], bucket=[1.0])
    value = summary_pb2.Summary.Value(tag="h", histo=histo)
    return event_pb2.Event(step=step, wall_time=step, summary=summary_pb2.Summary(value=[value]))


def test_points_come_in_the_order_of_the_file(
    tmp_path: Path, write: Write, scalar: Make, start: Make
) -> None:
    write(scalar("x", 1, 1), histogram(1), start(5), scalar("x", 2, 2), name="b/tfevents")
    write(scalar("x", 3, 3), name="a/tfevents")
    assert list(stream(tmp_path, kinds=["scalar", "session_log"])) == [
        ("a", "x", "scalar", 3, 3.0, 3.0),
        ("b", "x", "scalar", 1, 1.0, 1.0),
        ("b", "", "session_log", 5, 0.0, SessionLog(1)),
        ("b", "x", "scalar", 2, 2.0, 2.0),
    ]
    points = list(stream(tmp_path / "b"))
    assert [point.kind for point in points] == ["scalar", "histogram", "scalar"]
    assert isinstance(points[1].value, Histogram)
    np.testing.assert_array_equal(points[1].value.limits, [1.0])
    assert list(stream(tmp_path, tags="y")) == []


def test_ten_thousand_points_of_two_kinds(tmp_path: Path, write: Write, scalar: Make) -> None:
    for step in range(5_000):
        write(scalar("x", step, step), histogram(step))
    found = [(point.kind, point.step) for point in stream(tmp_path)]
    assert found == [(kind, step) for step in range(5_000) for kind in ("scalar", "histogram")]


def test_what_is_added_while_it_is_followed(
    tmp_path: Path, write: Write, scalar: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(secs: float) -> None:
        """In place of waiting."""
        added = len(list(tmp_path.iterdir()))
        write(scalar("x", added, added), name=f"{added}/tfevents")
        write(scalar("x", -added, added), name="0/tfevents")

    monkeypatch.setattr("time.sleep", add)
    write(scalar("x", 0, 0), name="0/tfevents")
    points = stream(tmp_path, follow=True)
    assert [next(points)[::5] for _ in range(5)] == [
        ("0", 0.0),
        ("0", -1.0),
        ("1", 1.0),
        ("0", -2.0),
        ("2", 2.0),
    ]
    points.close()


def test_what_cannot_be_decoded_is_left_out(tmp_path: Path, write: Write, scalar: Make) -> None:
    value = summary_pb2.Summary.Value(tag="h")
    value.histo.bucket.append(1.0)  # without a limit
    write(event_pb2.Event(summary=summary_pb2.Summary(value=[value])), bytes(9), scalar("x", 1, 1))
    assert list(stream(tmp_path)) == [StreamPoint(".", "x", "scalar", 1, 1.0, 1.0)]


def test_faults_are_raised_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        stream(tmp_path / "gone")
    with pytest.raises(ValueError, match="kinds"):
        stream(tmp_path, kinds="sound")
