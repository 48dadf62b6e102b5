"""SIGTERM in a program that adds to event files, with and without a handler of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runhooks.events import read
from tests.event_files import events_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals there")

LOOP = """
import os, signal, sys
from runhooks.events import Event
from runhooks.summary import FileWriter
def add(writer):
    for step in range(1, 1001):
        writer.scalar("loss", 0.5, step)
def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOOP + script, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def steps(folder: Path) -> list[int]:
    (path,) = folder.glob("*.tfevents.*")
    return [event.step for event in events_in(path)][1:]


def test_sigterm_flushes_and_then_ends_the_process(tmp_path: Path) -> None:
    script = """
writer = FileWriter(sys.argv[1])
add(writer)
terminate()
print("alive")
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGTERM, "", "")
    assert steps(tmp_path) == list(range(1, 1001))


def test_the_handler_of_a_program_stays_whenever_it_is_set(tmp_path: Path) -> None:
    script = """
def handler(number, frame):
    print("mine")
def work(folder):
    add(FileWriter(folder))
    terminate()
    print("alive")
signal.signal(signal.SIGTERM, handler)
work(sys.argv[1] + "/before")
signal.signal(signal.SIGTERM, signal.SIG_DFL)
other = FileWriter(sys.argv[1] + "/other")
signal.signal(signal.SIGTERM, handler)
work(sys.argv[1] + "/after")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
work(sys.argv[1] + "/ignored")
"""
    result = run(script, tmp_path)
    said = "mine\nalive\nmine\nalive\nalive\n"
    assert (result.returncode, result.stdout, result.stderr) == (0, said, "")
    for when in ("before", "after", "ignored"):
        assert steps(tmp_path / when) == list(range(1, 1001))


def test_a_handler_that_calls_the_one_before_decides_itself_how_to_end(tmp_path: Path) -> None:
    script = """
writer = FileWriter(sys.argv[1])
before = signal.getsignal(signal.SIGTERM)
def handler(number, frame):
    before(number, frame)
    print("still here")
    sys.exit(3)
signal.signal(signal.SIGTERM, handler)
add(writer)
terminate()
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (3, "still here\n", "")
    assert steps(tmp_path) == list(range(1, 1001))


def test_a_session_that_is_over_leaves_it_working(tmp_path: Path) -> None:
    # One that is closed in another thread cannot give its handlers back.
    script = """
import logging, threading
import runhooks as rh
logging.getLogger("runhooks").addHandler(logging.NullHandler())
writer = FileWriter(sys.argv[1])
session = rh.MonitoredSession(session_creator=rh.ChiefSessionCreator(rh.Scaffold()))
thread = threading.Thread(target=session.close)
thread.start()
thread.join()
add(writer)
terminate()
print("alive")
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGTERM, "", "")
    assert steps(tmp_path) == list(range(1, 1001))


def test_a_file_that_cannot_be_written_does_not_keep_the_process(tmp_path: Path) -> None:
    script = """
import threading
class Stuck:
    def SerializeToString(self):
        threading.Event().wait()
from runhooks.events.writing import background
background.GRACE_SECS = 0.1
writer = FileWriter(sys.argv[1])
writer.add_event(Event(0.0, 1, summary=Stuck()))
terminate()
print("alive")
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "")
    assert "events were lost as SIGTERM ended the process" in result.stderr
    assert "DeadlineExceededError" in result.stderr


def test_the_handler_is_there_as_long_as_a_writer_is_open(tmp_path: Path) -> None:
    script = """
handler = lambda: signal.getsignal(signal.SIGTERM)
one, two = FileWriter(sys.argv[1]), FileWriter(sys.argv[1])
one.close()
assert handler() is not signal.SIG_DFL
two.close()
assert handler() is signal.SIG_DFL
two.reopen()
assert handler() is not signal.SIG_DFL
signal.signal(signal.SIGTERM, signal.SIG_IGN)
two.close()
assert handler() is signal.SIG_IGN
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_forked_child_has_the_handler_when_it_writes(tmp_path: Path) -> None:
    script = """
handler = lambda: signal.getsignal(signal.SIGTERM)
writer = FileWriter(sys.argv[1])
before = handler()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    assert handler() is before
    writer.close()
else:
    assert handler() is signal.SIG_DFL
    add(writer)
    assert handler() is before
    terminate()
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    written = [[event.step for event in events_in(path)] for path in sorted(tmp_path.iterdir())]
    assert written == [[0], [0, *range(1, 1001)]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_workers_that_a_pool_ends_lose_nothing_that_was_flushed(tmp_path: Path) -> None:
    """They have no handler: for one that waits for a lock, the pool would wait for ever."""
    (tmp_path / "child.py").write_text("""
import signal
def add(writer, task):
    for step in range(5):
        writer.scalar(f"task {task}", step, step)
    writer.flush()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
""")
    script = """
import multiprocessing
sys.path.insert(0, sys.argv[1])
import child
with FileWriter(sys.argv[1] + "/run") as writer:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.starmap(child.add, [(writer, 0), (writer, 1)])
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    found = read(tmp_path)["run"].scalars
    assert {tag: tuple(it.steps) for tag, it in found.items()} == {
        "task 0": (0, 1, 2, 3, 4),
        "task 1": (0, 1, 2, 3, 4),
    }
