"""One process at a time saves checkpoints in a directory."""

import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import runhooks as rh
from runhooks.checkpoint import DirectoryLock
from runhooks.testing import FakeClock

PROGRAM = """
import sys, time
import runhooks as rh

with rh.Graph().as_default():
    op = rh.train.get_or_create_global_step().assign_add(1)
    with rh.MonitoredTrainingSession(checkpoint_dir=sys.argv[1]) as session:
        session.run(op)
        print("open", flush=True)
        time.sleep(1000)
"""


ENDING = PROGRAM.replace("time.sleep(1000)", "")


def run(program, *arguments, code=0):
    """Run a program to its end; return what it prints, on stderr first."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr, done.stdout


@pytest.fixture
def other(tmp_path):
    """Another process that trains in ``tmp_path``."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def train(directory, **arguments):
    with rh.Graph().as_default():
        op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(checkpoint_dir=directory, **arguments) as session:
            session.run(op)
            return session.global_step


def test_a_directory_on_a_full_disk_is_not_locked_for_ever(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=f"File too large.*{tmp_path}"):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert train(tmp_path) == 1


def test_a_directory_that_cannot_be_locked_is_named(tmp_path):
    (tmp_path / ".chief.lock").mkdir()
    with pytest.raises(IsADirectoryError, match=str(tmp_path)) as caught:
        train(tmp_path)
    assert not getattr(caught.value, "__notes__", [])


def files(directory):
    return {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_a_second_chief_is_refused_before_it_writes_and_told_of_the_first(
    other, tmp_path, monkeypatch
):
    before = files(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    link = tmp_path.parent / "link"
    link.symlink_to(tmp_path)
    for spelling in (tmp_path, f"./{tmp_path.name}/", link, tmp_path / ".." / tmp_path.name):
        with pytest.raises(RuntimeError, match="another process.* is_chief") as caught:
            train(spelling)
        assert str(other.pid) in str(caught.value)
        assert socket.gethostname() in str(caught.value)
    assert files(tmp_path) == before
    assert train(tmp_path, is_chief=False) == 1


def test_a_second_session_of_the_process_is_refused_while_the_first_is_open(tmp_path):
    assert train(tmp_path) == 1
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            for directory in (tmp_path, tmp_path / ".." / tmp_path.name):
                with pytest.raises(RuntimeError, match="another session of this process") as caught:
                    train(directory)
            assert str(tmp_path) in str(caught.value)
            assert not session.should_stop()
            train(tmp_path.with_name("elsewhere"))
    assert train(tmp_path) == 2


def test_a_session_that_saves_nothing_may_read_beside_one_that_does(tmp_path):
    with rh.Graph().as_default():
        op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            session.run(op)
            assert train(tmp_path, save_checkpoint_secs=None) == 1
    assert train(tmp_path) == 2


def test_a_session_that_was_lost_and_replaced_is_the_same(tmp_path):
    lost = []

    class Lose(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if not lost:
                lost.append(True)
                raise rh.errors.AbortedError("lost")

    assert train(tmp_path, hooks=[Lose()]) == 1
    assert lost


def test_the_lock_is_released_with_the_session(tmp_path):
    def fail(session):
        raise KeyError

    with pytest.raises(KeyError):
        with rh.Graph().as_default():
            rh.train.get_or_create_global_step()
            with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
                fail(session)
    train(tmp_path)
    run(ENDING, tmp_path)


FORKS = """
import os, subprocess, sys
import runhooks as rh

with rh.Graph().as_default():
    rh.train.get_or_create_global_step()
    with rh.MonitoredTrainingSession(checkpoint_dir=sys.argv[1]):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)  # until its parent ends
            os._exit(0)
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], check=True)
"""


def test_a_forked_child_does_not_hold_the_lock(tmp_path):
    run(FORKS, tmp_path, ENDING)


def test_a_copy_of_the_directory_does_not_end_the_lock(tmp_path):
    directory = tmp_path / "run"
    with rh.Graph().as_default():
        op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(checkpoint_dir=directory) as session:
            session.run(op)
            shutil.copytree(directory, tmp_path / "backup")
            assert "another process" in run(ENDING, directory, code=1)[0]


CHILD_TRAINS = """
import os, sys
import runhooks as rh

with rh.Graph().as_default():
    op = rh.train.get_or_create_global_step().assign_add(1)
    session = rh.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_steps=2)
    session.run(op)
    if os.fork() == 0:
        try:
            for _ in range(5):
                session.run(op)
        except RuntimeError as error:
            os._exit(7 if "another process" in str(error) else 1)
        os._exit(0)
    print(os.WEXITSTATUS(os.wait()[1]), rh.latest_checkpoint(sys.argv[1])[-1])
    session.close()
"""


def test_a_forked_child_does_not_save_in_the_directory_of_its_parent(tmp_path):
    assert run(CHILD_TRAINS, tmp_path)[1].split() == ["7", "0"]


def test_a_session_that_was_dropped_is_in_nobodys_way(tmp_path):
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        session = rh.MonitoredTrainingSession(checkpoint_dir=tmp_path)
        session.itself = session
        del session
    assert train(tmp_path) == 1
    assert not list(tmp_path.glob(".*"))


def test_neither_a_killed_process_nor_one_that_could_not_begin_is_in_anybodys_way(other, tmp_path):
    with pytest.raises(RuntimeError, match="another process") as caught:
        train(tmp_path)
    other.kill()
    other.wait()
    assert train(tmp_path) == 1
    del caught


KILLED_AS_IT_FORKS = """
import os, signal, sys

held, told = map(int, sys.argv[2:])

def stay():
    os.write(told, b"x")
    os.read(held, 1)

os.register_at_fork(after_in_child=stay)  # before what runhooks does there

import runhooks as rh

with rh.Graph().as_default():
    rh.train.get_or_create_global_step()
    with rh.MonitoredTrainingSession(checkpoint_dir=sys.argv[1]):
        if os.fork() == 0:
            os._exit(0)
        signal.pause()
"""


@pytest.fixture
def locked_by_a_child(tmp_path):
    """``tmp_path`` is locked by the child of a killed process; returns what ends the child."""
    (held, end), (begun, told) = os.pipe(), os.pipe()
    words = [sys.executable, "-c", KILLED_AS_IT_FORKS, tmp_path, str(held), str(told)]
    with subprocess.Popen(words, pass_fds=(held, told)) as process:
        os.close(held)
        os.close(told)
        assert os.read(begun, 1) == b"x"
        process.kill()
    os.close(begun)
    done = []
    yield lambda: done or (done.append(True), os.close(end))
    assert done


def test_a_child_that_was_being_forked_as_its_parent_was_killed_is_waited_for(
    locked_by_a_child, tmp_path, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda secs: locked_by_a_child())
    assert train(tmp_path) == 1


def test_a_child_that_does_not_end_is_waited_for_in_vain(locked_by_a_child, tmp_path, monkeypatch):
    with FakeClock() as clock:
        monkeypatch.setattr("time.sleep", lambda secs: clock.advance(4))
        with pytest.raises(RuntimeError, match="another process.* is_chief"):
            train(tmp_path)
    locked_by_a_child()


def test_an_owner_with_an_impossible_number_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda secs: pytest.fail("it waits"))
    with (tmp_path / ".chief.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print(f"process {10**12} on {socket.gethostname()}", file=file, flush=True)
        with pytest.raises(RuntimeError, match="another process.* is_chief"):
            DirectoryLock(tmp_path).acquire()


def test_of_two_sessions_that_begin_at_once_one_is_refused(tmp_path, monkeypatch):
    first, second = (DirectoryLock(tmp_path, sole=True) for _ in range(2))
    make, refused = Path.mkdir, []

    def begin_the_second(path, *arguments, **options):
        monkeypatch.setattr(Path, "mkdir", make)
        make(path, *arguments, **options)
        with ThreadPoolExecutor() as threads:
            refused.append(threads.submit(second.acquire).exception())

    monkeypatch.setattr(Path, "mkdir", begin_the_second)
    first.acquire()
    assert "another session of this process" in str(refused[0])
    first.release()
    assert train(tmp_path) == 1


UNCLOSED = """
import logging
import sys
import numpy as np
import runhooks as rh

logging.getLogger("runhooks").addHandler(logging.NullHandler())
graph = rh.jax.graph(lambda state: (state + 1, {"sum": state.sum()}), state=np.float32(0))
with graph.as_default():
    session = rh.MonitoredSession(hooks=[rh.CheckpointSaverHook(sys.argv[1], save_steps=2)])
    session.run("train_op")
"""


@pytest.mark.slow
def test_a_program_that_leaves_a_session_open_ends_without_a_word(tmp_path):
    assert run(UNCLOSED, tmp_path) == ("", "")
    assert list(tmp_path.glob("model.ckpt-*"))
    assert not list(tmp_path.glob(".*"))
