"""Writers of one directory share its file, so that no ``START`` hides what another has written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import runhooks as rh
from runhooks import events
from runhooks.summary import (
    FileWriter,
    FileWriterCache,
    SessionLog,
    SessionStatus,
    Summary,
    scalar_value,
)
from runhooks.testing import read_events
from tests.summary.conftest import Late

START = SessionLog(SessionStatus.START)
LAST_STEP = 12
FAILS_AT = 7


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    yield
    FileWriterCache.clear()


def curve(folder: Path, tag: str) -> list[int]:
    """The steps of ``tag`` as TensorBoard shows them; ``events.read`` has to agree."""
    accumulator = EventAccumulator(str(folder), {"scalars": 0})
    accumulator.Reload()
    steps = [point.step for point in accumulator.Scalars(tag)]
    assert events.read(folder).only.scalars[tag].steps.tolist() == steps
    return steps


class OwnCurve(rh.SessionRunHook):
    """A loop that writes a curve of its own to the directory of the run."""

    def __init__(self, writer: Callable[[], FileWriter]) -> None:
        self._writer = writer

    def after_run(self, run_context: rh.SessionRunContext, run_values: rh.SessionRunValues) -> None:
        step = run_context.session.global_step
        self._writer().scalar("own", step, step)


def train(folder: Path, writer: Callable[[], FileWriter], *, fails: bool = True) -> None:
    """Train with summaries in every step, and lose the session once."""
    graph = rh.Graph()
    with graph.as_default():
        step = rh.train.get_or_create_global_step()
        failures = [FAILS_AT] if fails else []

        def fail(at: int) -> None:
            if failures and at == failures[0]:
                failures.pop()
                raise rh.errors.AbortedError("the session is lost")

        train_op = rh.group(rh.call(fail, step).op, step.assign_add(1))
        rh.summary.scalar("hook", step)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=[rh.StopAtStepHook(last_step=LAST_STEP), OwnCurve(writer)],
            save_checkpoint_steps=5,
            save_summaries_steps=1,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(train_op)


@pytest.mark.parametrize("when", ["before", "in the loop", "of the cache", "other options"])
def test_a_start_hides_nothing_of_the_programs_own_writer(tmp_path: Path, when: str) -> None:
    make = {
        "of the cache": lambda: FileWriterCache.get(tmp_path),
        "other options": lambda: FileWriter(tmp_path, max_queue=100, filename_suffix=".own"),
    }.get(when, lambda: FileWriter(tmp_path))
    opened: list[FileWriter] = []

    def writer() -> FileWriter:
        if not opened:
            opened.append(make())
        return opened[0]

    if when != "in the loop":
        writer().text("config", "rate: 0.1", 0)
    train(tmp_path, writer)
    opened[0].close()
    FileWriterCache.clear()
    assert curve(tmp_path, "own") == list(range(1, LAST_STEP + 1))
    assert curve(tmp_path, "hook") == list(range(1, LAST_STEP + 1))
    assert len(list(tmp_path.glob("*tfevents*"))) == 1
    if when != "in the loop":
        assert list(events.read(tmp_path).only.texts) == ["config"]


def test_a_resumed_program_hides_what_it_writes_again_alone(tmp_path: Path) -> None:
    for _ in range(2):
        shutil.rmtree(tmp_path / f"model.ckpt-{LAST_STEP}", ignore_errors=True)
        with FileWriter(tmp_path) as own:
            train(tmp_path, lambda own=own: own, fails=False)  # type: ignore[misc]
        FileWriterCache.clear()
    assert len(list(tmp_path.glob("*tfevents*"))) == 2
    assert curve(tmp_path, "own") == list(range(1, LAST_STEP + 1))


def test_each_closes_for_itself(tmp_path: Path) -> None:
    one, two = FileWriter(tmp_path), FileWriter(tmp_path / "." / "")
    one.scalar("loss", 1.0, 1)
    one.close()
    one.close()
    assert (one.closed, two.closed) == (True, False)
    assert curve(tmp_path, "loss") == [1]
    for add in (one.scalar, one.histogram):
        with pytest.raises(RuntimeError, match="closed"):
            add("loss", 2.0, 2)
    with pytest.raises(RuntimeError, match="closed"):
        one.scalars({"loss": 2.0}, 2)
    one.flush()
    two.scalar("loss", 2.0, 2)
    one.reopen()
    one.scalar("loss", 3.0, 3)
    two.close()
    one.scalar("loss", 4.0, 4)
    one.close()
    assert curve(tmp_path, "loss") == [1, 2, 3, 4]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_start_is_repeated_if_another_has_written_since(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as one, FileWriter(tmp_path) as two:
        for _ in range(2):
            one.add_session_log(START, 5)
            two.add_session_log(START, 5)
            two.scalar("loss", 1.0, 5)
            two.scalar("loss", 1.0, 6)
    assert curve(tmp_path, "loss") == [5, 6]


def test_threads_share_it(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for step in range(20):
            with FileWriter(tmp_path) as writer:
                writer.scalar(f"loss/{number}", float(step), step)

    with FileWriter(tmp_path):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(8):
        assert curve(tmp_path, f"loss/{number}") == list(range(20))
    assert len(list(tmp_path.iterdir())) == 1


def points(folder: Path) -> list[tuple[int, float | bytes]]:
    return [(event.step, event.value) for event in read_events(folder)]


def loss(value: object) -> Summary:
    return Summary([scalar_value("loss", value)])


def test_a_directory_has_one_writer_whatever_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    writer = FileWriterCache.get(run)
    (tmp_path / "link").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    assert FileWriterCache.get(str(tmp_path / "link")) is writer
    assert FileWriterCache.get("run/") is writer
    assert FileWriterCache.get(tmp_path) is not writer
    assert len(list(run.iterdir())) == 1


def test_a_closed_writer_comes_back_open_and_clear_forgets_it(tmp_path: Path) -> None:
    FileWriterCache.get(tmp_path).close()
    writer = FileWriterCache.get(tmp_path)
    writer.add_summary(loss(0.5), 1)
    FileWriterCache.clear()
    assert writer.closed
    assert points(tmp_path) == [(1, 0.5)]
    assert FileWriterCache.get(tmp_path) is not writer


def test_a_deleted_directory_comes_back(tmp_path: Path) -> None:
    for _ in range(2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        writer = FileWriterCache.get(tmp_path / "run")
        writer.add_session_log(SessionLog(SessionStatus.START), 1)
        writer.add_summary(loss(0.5), 1)
        writer.flush()
    (path,) = (tmp_path / "run").iterdir()
    _, start, summary = EventFileLoader(str(path)).Load()
    assert (start.session_log.status, summary.step) == (SessionStatus.START, 1)


def test_one_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    for index in range(4):
        value = Late(np.zeros(2)) if index in (0, 2) else 0.5
        FileWriterCache.get(tmp_path / str(index)).add_summary(loss(value), 3)
    with pytest.raises(ValueError, match="must be a single number") as raised:
        FileWriterCache.clear()
    assert "and then failed: ValueError" in raised.value.__notes__[-1]
    assert points(tmp_path / "3") == [(3, 0.5)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_forked_child_can_use_it(tmp_path: Path) -> None:
    # The parent forks while one of its threads holds every lock there is.
    script = """
import os, sys, threading
import numpy
from runhooks.summary import FileWriterCache, Summary, scalar_value
reading, go_on = threading.Event(), threading.Event()
class Slow:
    def __array__(self, dtype=None, copy=None):
        reading.set()
        go_on.wait()
        return numpy.array(1.0)
FileWriterCache.get(sys.argv[1]).add_summary(Summary([scalar_value("loss", Slow())]), 1)
thread = threading.Thread(target=FileWriterCache.clear)
thread.start()
reading.wait()
child = os.fork()
if not child:
    FileWriterCache.get(sys.argv[1]).add_summary(Summary([scalar_value("loss", 2.0)]), 2)
    FileWriterCache.clear()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go_on.set()
thread.join()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
    assert sorted(points(tmp_path)) == [(1, 1.0), (2, 2.0)]
