import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from runhooks.summary import (
    FileWriterCache,
    SessionLog,
    SessionStatus,
    Summary,
    scalar_value,
)
from runhooks.testing import read_events
from tests.summary.conftest import Late


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    yield
    FileWriterCache.clear()


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
