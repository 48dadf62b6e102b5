"""Points that a later session replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.events import check, read, stream

Write = Callable[..., Path]
Make = Callable[..., Any]

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
version = event_pb2.Event(file_version="brain.Event:2")


def histogram(step: int) -> Any:
    value = summary_pb2.Summary.Value(tag="h", histo=summary_pb2.HistogramProto(num=step))
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value]))


def test_a_start_drops_what_an_earlier_session_wrote_from_its_step_on(
    tmp_path: Path, write: Write, scalar: Make, start: Make
) -> None:
    write(start(0), *(scalar("x", 1, step) for step in range(1, 6)), histogram(4))
    write(start(3), scalar("x", 2, 3), scalar("x", 2, 4), name="events.out.tfevents.2")
    run = read(tmp_path).only
    assert run.scalars["x"].steps.tolist() == [1, 2, 3, 4]
    assert run.scalars["x"].values.tolist() == [1, 1, 2, 2]
    assert list(run.tags) == ["x"]
    assert [log.step for log in run.session_logs] == [0, 3]
    assert check(tmp_path)[1].folds == []
    kept = read(tmp_path, purge=False).only
    assert kept.scalars["x"].steps.tolist() == [1, 2, 3, 4, 5, 3, 4]
    assert kept.histograms["h"].steps.tolist() == [4]
    assert len(list(stream(tmp_path))) == 8


def test_a_start_at_the_end_drops_what_was_read_before(
    tmp_path: Path, write: Write, scalar: Make, start: Make
) -> None:
    write(*(scalar("x", 1, step) for step in range(5)), scalar("y", 1, 4))
    runs = read(tmp_path)
    assert list(runs.only.scalars) == ["x", "y"]
    write(start(2))
    assert runs.update() == 0
    assert list(runs.only.scalars) == ["x"]
    assert runs.only.scalars["x"].steps.tolist() == [0, 1]


# None: a file ends. A negative number: a session starts at the step -1 - number.
histories = st.lists(st.none() | st.integers(-6, 5), max_size=60)


@same_folder
@given(histories, st.integers(1, 3))
def test_tensorboard_drops_the_same(
    tmp_path: Path,
    write: Write,
    scalar: Make,
    start: Make,
    tensorboard: Callable[[Path], EventAccumulator],
    history: list[int | None],
    times: int,
) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    files = 1
    write(version, name="events.out.tfevents.001")
    for item in history:
        name = f"events.out.tfevents.{files:03}"
        if item is None:
            files += 1
            write(version, name=f"events.out.tfevents.{files:03}")
        elif item < 0:
            write(start(-1 - item), name=name)
        else:
            write(*(scalar("x", item, item) for _ in range(times)), histogram(item), name=name)
    run, theirs = read(tmp_path).only, tensorboard(tmp_path)
    scalars = [s.step for s in theirs.Scalars("x")] if "x" in theirs.Tags()["scalars"] else []
    assert [step for s in run.scalars.values() for step in s.steps] == scalars
    histograms = [h.step for h in theirs.Histograms("h")] if theirs.Tags()["histograms"] else []
    assert [point.step for points in run.histograms.values() for point in points] == histograms


@pytest.mark.parametrize("first", [1, 2])
def test_a_session_that_stops_drops_nothing(
    tmp_path: Path, write: Write, scalar: Make, first: int
) -> None:
    stop = event_pb2.Event(step=0, session_log=event_pb2.SessionLog(status=first + 1))
    write(scalar("x", 1, 1), stop)
    assert read(tmp_path).only.scalars["x"].steps.tolist() == [1]
