"""Points that a later session, or a later point of an earlier step, replaces."""

from __future__ import annotations

import json
import subprocess
import sys
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


#: Prints the scalars of three tags as TensorBoard's own server has them.
TENSORBOARD = """
import json, sys, time
from tensorboard import context
from tensorboard.data import server_ingester
from tensorboard.util import grpc_util
server = server_ingester.SubprocessServerDataIngester(
    server_binary=server_ingester.get_server_binary(),
    logdir=sys.argv[1],
    reload_interval=1,
    channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
)
server.start()
shown = {}
while len(shown) < 3:
    time.sleep(0.1)
    runs = server.data_provider.read_scalars(
        context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000
    )
    shown = runs.get(".", {})
points = {tag: [[p.step, p.value] for p in points] for tag, points in shown.items()}
print(json.dumps(points))
"""


def steps_that_stay(steps: list[int]) -> list[int]:
    stay: list[int] = []
    for step in steps:
        while stay and stay[-1] >= step:
            stay.pop()
        stay.append(step)
    return stay


@same_folder
@given(st.lists(st.none() | st.tuples(st.sampled_from("xy"), st.integers(0, 9)), max_size=60))
def test_a_fold_is_kept_or_dropped(
    tmp_path: Path, write: Write, scalar: Make, history: list[tuple[str, int] | None]
) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    files = 1
    written: dict[str, list[int]] = {}
    write(version, name="events.out.tfevents.001")
    for item in history:
        if item is None:
            files += 1
            write(version, name=f"events.out.tfevents.{files:03}")
        else:
            tag, step = item
            name = f"events.out.tfevents.{files:03}"
            write(scalar(tag, len(written), step), histogram(step), name=name)
            written.setdefault(tag, []).append(step)
            written.setdefault("h", []).append(step)
    for fold, stay in (("keep", list), ("drop", steps_that_stay)):
        run = read(tmp_path, fold=fold).only
        found = {tag: scalars.steps.tolist() for tag, scalars in run.scalars.items()}
        found |= {tag: points.steps.tolist() for tag, points in run.histograms.items()}
        assert found == {tag: stay(steps) for tag, steps in written.items()}
        assert {tag: tags.points for tag, tags in run.tags.items()} == {
            tag: len(steps) for tag, steps in found.items()
        }
        for point in run.histograms.get("h", ()):
            assert point.value.num == point.step


def test_tensorboard_shows_what_folds_drop(tmp_path: Path, write: Write, scalar: Make) -> None:
    for tag, steps in {"x": [10, 3, 11], "y": [1, 2, 2, 3], "z": [5, 4, 3, 9, 8]}.items():
        write(*(scalar(tag, at, step) for at, step in enumerate(steps)))
    command = [sys.executable, "-W", "ignore", "-c", TENSORBOARD, str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    run = read(tmp_path, fold="drop").only
    assert json.loads(shown) == {
        tag: [[step, value] for step, value, _ in zip(*map(list, scalars), strict=True)]
        for tag, scalars in run.scalars.items()
    }


def test_a_fold_has_two_ways(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fold .*'sort'"):
        read(tmp_path, fold="sort")  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [1, 2])
def test_a_session_that_stops_drops_nothing(
    tmp_path: Path, write: Write, scalar: Make, first: int
) -> None:
    stop = event_pb2.Event(step=0, session_log=event_pb2.SessionLog(status=first + 1))
    write(scalar("x", 1, 1), stop)
    assert read(tmp_path).only.scalars["x"].steps.tolist() == [1]
