"""What is added to a run that was read already, and points that a later session replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.errors import DataLossError
from runhooks.events import Damage, Run, check, frame, read, stream

Write = Callable[..., Path]
Make = Callable[..., Any]

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
version = event_pb2.Event(file_version="brain.Event:2")


def histogram(step: int) -> Any:
    value = summary_pb2.Summary.Value(tag="h", histo=summary_pb2.HistogramProto(num=step))
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value]))


def contents(run: Run) -> dict[str, Any]:
    return {tag: [column.tolist() for column in run.scalars[tag]] for tag in run.scalars}


def test_only_what_is_new_is_read(tmp_path: Path, write: Write, scalar: Make) -> None:
    path = write(*(scalar("x", step, step) for step in range(100)))
    runs = read(tmp_path)
    before = runs.only.scalars["x"]
    assert runs.update() == 0
    size = path.stat().st_size
    with path.open("r+b") as file:  # what was read is not looked at again, but for the beginning
        file.seek(64)
        file.write(bytes(size - 64))
    write(scalar("x", 100, 100), scalar("y", 1, 1))
    assert runs.update() == 2
    assert runs.only.scalars["x"].steps.tolist() == list(range(101))
    assert list(runs.only.scalars) == ["x", "y"]
    assert runs.only.damages == []
    assert len(before.steps) == 100


def test_new_files_and_runs(tmp_path: Path, write: Write, scalar: Make) -> None:
    write(scalar("x", 1, 1), name="a/events.out.tfevents.1")
    runs = read(tmp_path)
    write(scalar("x", 2, 2), name="a/events.out.tfevents.2")
    write(scalar("x", 3, 3), name="b/events.out.tfevents.1")
    assert runs["a"].update() == 1
    assert list(runs) == ["a"]
    assert runs.update() == 1
    assert {name: run.scalars["x"].steps.tolist() for name, run in runs.items()} == {
        "a": [1, 2],
        "b": [3],
    }


def test_a_file_or_run_that_is_gone_is_dropped(tmp_path: Path, write: Write, scalar: Make) -> None:
    path = write(scalar("x", 1, 1), name="a/events.out.tfevents.1")
    other = write(scalar("x", 2, 2), name="a/events.out.tfevents.2")
    write(scalar("x", 3, 3), name="b/events.out.tfevents.1")
    runs = read(tmp_path)
    run, before = runs["a"], runs["a"].scalars["x"]
    path.unlink()
    assert runs.update() == 0
    assert run.scalars["x"].steps.tolist() == [2]
    other.unlink()
    assert runs.update() == 0
    assert list(runs) == ["b"]
    assert before.steps.tolist() == [1, 2]
    path.parent.rmdir()
    with pytest.raises(FileNotFoundError, match="/a'"):
        run.update()


@pytest.mark.parametrize("last", [1, 50], ids=["shorter", "longer"])
@pytest.mark.parametrize("by_renaming", [False, True])
def test_a_file_that_was_replaced_is_read_anew(
    tmp_path: Path, write: Write, scalar: Make, last: int, by_renaming: bool
) -> None:
    path = write(*(scalar("x", 1, step) for step in range(20)), histogram(20), name="a/tfevents")
    runs, live = read(tmp_path), stream(path, follow=True)
    old = runs["a"].histograms["h"]
    streamed = [next(live).step for _ in range(21)]
    new = write(*(scalar("y", 2, step) for step in range(100, 100 + last)), name="new")
    if by_renaming:
        new.rename(path)
    else:
        path.write_bytes(new.read_bytes())
    with pytest.raises(DataLossError, match="replaced"):
        _ = old[0]
    assert runs.update() == last
    assert contents(runs["a"]) == contents(read(path).only)
    assert (list(runs["a"].tags), runs.damages) == (["y"], [])
    assert (streamed, next(live).step) == ([*range(21)], 100)
    assert runs.update() == 0


@pytest.mark.parametrize("cut", [1, 11, 12, 30, -1])
def test_a_last_record_that_is_cut_off_waits(
    tmp_path: Path, write: Write, scalar: Make, cut: int
) -> None:
    record = frame(scalar("x", 2, 2).SerializeToString())
    path = write(scalar("x", 1, 1), record[:cut])
    runs = read(tmp_path)
    assert runs.only.scalars["x"].steps.tolist() == [1]
    assert runs.damages == []
    (report,) = check(tmp_path)
    assert (report.sound, report.partial) == (True, len(record[:cut]))
    assert runs.update() == 0
    write(record[cut:])
    assert runs.update() == 1
    assert runs.only.scalars["x"].steps.tolist() == [1, 2]
    assert check(tmp_path)[0].partial == 0
    assert check(tmp_path)[0].size == path.stat().st_size


def test_a_damage_at_the_end_may_turn_out_longer(
    tmp_path: Path, write: Write, scalar: Make
) -> None:
    path = write(scalar("x", 1, 1))
    begin = path.stat().st_size
    write(bytes(20))
    runs = read(tmp_path)
    reason = "no record begins here"
    assert runs.damages == [Damage(path, begin, 20, reason)]
    write(bytes(5))
    assert runs.update() == 0
    assert runs.damages == [Damage(path, begin, 25, reason)]
    write(scalar("x", 2, 2))
    assert runs.update() == 1
    assert runs.damages == [Damage(path, begin, 25, reason)]
    assert runs.only.scalars["x"].steps.tolist() == [1, 2]


def test_zeros_that_are_filled_in_later_were_no_damage(
    tmp_path: Path, write: Write, scalar: Make
) -> None:
    """As on NFS, where the size of a file may be seen before what is in it."""
    path = write(scalar("x", 1, 1))
    begin = path.stat().st_size
    record = frame(scalar("x", 2, 2).SerializeToString())
    write(bytes(len(record)))
    runs = read(tmp_path)
    assert len(runs.damages) == 1
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(record)
    write(scalar("x", 3, 3))
    assert runs.update() == 2
    assert runs.damages == []


items = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "long tag"]), st.integers(0, 300)),
        st.integers(0, 300),  # a session starts
        st.binary(min_size=1, max_size=30),  # rubbish
    ),
    max_size=30,
)


@same_folder
@given(items, st.integers(1, 8), st.lists(st.integers(1, 400), max_size=10))
def test_read_piece_by_piece_as_at_once(
    tmp_path: Path,
    write: Write,
    scalar: Make,
    start: Make,
    written: list[Any],
    times: int,
    lengths: list[int],
) -> None:
    path = write()
    path.write_bytes(b"")
    for item in written:
        if isinstance(item, tuple):
            write(*(scalar(item[0], item[1], item[1]) for _ in range(times)))
        else:
            write(item if isinstance(item, bytes) else start(item))
    whole = path.read_bytes()
    path.write_bytes(b"")
    runs = read(tmp_path)
    new = 0
    for end in [*np.cumsum(lengths).tolist(), len(whole)]:
        path.write_bytes(whole[:end])
        new += runs.update()
    at_once = read(tmp_path)
    assert contents(runs.only) == contents(at_once.only)
    assert runs.damages == at_once.damages
    assert new == sum(len(s.steps) for s in read(tmp_path, purge=False).only.scalars.values())


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
