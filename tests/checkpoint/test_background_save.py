"""Asynchronous saving: training goes on while a checkpoint is written."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints, read_checkpoint


def steps(folder):
    return [checkpoint_step(path) for path in checkpoints(folder)]


def full():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def saver():
    return rh.Saver(max_to_keep=1, asynchronous=True)


def test_the_caller_goes_on_while_it_is_written(saver, tmp_path, at_step, held_disk):
    path = saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    assert path == str(tmp_path / "model.ckpt-1")
    assert checkpoints(tmp_path) == saver.last_checkpoints == []
    held_disk.release()
    saver.wait()
    assert checkpoints(tmp_path) == saver.last_checkpoints == [path]


@pytest.mark.every_engine
def test_it_holds_what_was_there_when_it_was_saved(saver, tmp_path, graph, held_disk):
    class Part:
        kept = np.zeros(2)

        def state_dict(self):
            return {"kept": self.kept}

        def load_state_dict(self, state):
            raise AssertionError("nothing is loaded here")

    weights = rh.Variable(np.zeros((300, 300), np.float32), name="weights")
    train_op = weights.assign(rh.call(lambda w: w * 2 + 1, weights))
    with rh.Session(graph) as sess:
        sess.attach("part", Part())
        sess.run(train_op)
        path = saver.save(sess, tmp_path / "model.ckpt")
        for _ in range(5):  # on jax the buffers of the variables are donated to these
            sess.run(train_op)
            Part.kept += 1
        held_disk.release()
        saver.wait()
    saved = read_checkpoint(Path(path))
    assert (saved.arrays["weights"] == 1).all()
    assert (saved.states["part"]["kept"] == 0).all()


def test_on_jax_nothing_holds_the_buffers_that_later_runs_take_over():
    with rh.Graph(engine="jax").as_default() as graph:
        rh.Variable(np.zeros(1000, np.float32), name="weights")
    with rh.Session(graph) as sess:
        buffer = sess.snapshot().arrays["weights"]
        assert not np.shares_memory(buffer, sess.snapshot(into={}).arrays["weights"])


def test_memory_that_is_used_again_holds_what_is_saved_next(tmp_path):
    saver = rh.Saver(asynchronous=True)
    for shape in ((300,), (300,), (20, 20)):
        with rh.Graph(engine="jax").as_default() as graph:
            weights = rh.Variable(np.zeros(shape, np.float32), name="weights")
            train_op = rh.group(weights.assign_add(np.float32(1)))
        with rh.Session(graph) as sess:
            for value in range(3):
                path = saver.save(sess, tmp_path / "model.ckpt")
                sess.run(train_op)
                saver.wait()
                saved = read_checkpoint(Path(path)).arrays["weights"]
                np.testing.assert_array_equal(saved, np.full(shape, value))


def test_older_ones_are_deleted_when_it_is_on_the_disk(tmp_path, at_step, held_disk):
    held_disk.release()
    rh.Saver().save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    held_disk.hold()
    saver = rh.Saver(max_to_keep=1, asynchronous=True)
    saver.save(at_step(2), tmp_path / "model.ckpt", global_step=2)
    assert steps(tmp_path) == [1]
    held_disk.release()
    saver.wait()
    assert steps(tmp_path) == [2]


@pytest.mark.parametrize("next_call", ["save", "restore", "wait"])
def test_its_error_is_raised_by_the_next_call_once(saver, tmp_path, at_step, held_disk, next_call):
    sess, base = at_step(1), tmp_path / "model.ckpt"
    path = saver.save(sess, base, global_step=1)
    assert sess.checkpoint == path
    held_disk.fail(full())
    calls = {
        "save": lambda: saver.save(sess, base, global_step=2),
        "restore": lambda: saver.restore(sess, path),
        "wait": saver.wait,
    }
    with pytest.raises(OSError, match="No space left") as caught:
        calls[next_call]()
    assert path in caught.value.__notes__[0]
    assert sess.checkpoint is None
    held_disk.release()
    saver.save(sess, base, global_step=3)
    saver.wait()
    assert steps(tmp_path) == [3]
    assert [it.name for it in tmp_path.iterdir()] == ["model.ckpt-3"]


def test_what_cannot_be_saved_is_refused_at_once(saver, tmp_path, at_step):
    sess = at_step(1)
    sess.states = {"hook": {"what": object()}}
    with pytest.raises(TypeError, match="hook/what"):
        saver.save(sess, tmp_path / "model.ckpt", global_step=1)


def test_if_no_thread_can_be_started_it_is_saved_nevertheless(
    saver, tmp_path, at_step, monkeypatch
):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    saver.wait()
    assert steps(tmp_path) == [1]


BEGINNING = """
import os, sys, threading
import numpy as np
import runhooks as rh

held, fsync = threading.Event(), os.fsync
os.fsync = lambda descriptor: held.wait() and fsync(descriptor)
with rh.Graph().as_default() as graph:
    rh.Variable(np.ones(100_000), name="weights")
    sess = rh.Session()
saver = rh.Saver(asynchronous=True)
saver.save(sess, sys.argv[1] + "/model.ckpt", global_step=1)

def until_main_is_in(*functions):
    inside = set()
    while inside.isdisjoint(functions):
        frame, inside = sys._current_frames().get(threading.main_thread().ident), set()
        while frame is not None:
            inside.add(frame.f_code.co_qualname)
            frame = frame.f_back

def beside(act):
    threading.Thread(target=act, daemon=True).start()
"""


def finish(program, folder, stderr=""):
    arguments = [sys.executable, "-W", "error", "-c", BEGINNING + program, str(folder)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert stderr in done.stderr if stderr else done.stderr == ""


def test_the_interpreter_does_not_exit_before_it(tmp_path):
    finish("beside(lambda: [until_main_is_in('_shutdown'), held.set()])", tmp_path)
    assert (read_checkpoint(tmp_path / "model.ckpt-1").arrays["weights"] == 1).all()


def test_a_forked_child_does_not_wait_for_it(tmp_path):
    forking = """
child = os.fork()
if child == 0:
    saver.wait()
    os.fsync = fsync
    saver.save(sess, sys.argv[1] + "/child.ckpt", global_step=2)
    saver.wait()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
held.set()
"""
    ignoring = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
    finish(ignoring + forking, tmp_path)
    assert {Path(path).name for path in checkpoints(tmp_path)} == {"model.ckpt-1", "child.ckpt-2"}


# Sends more than one: a signal that comes just before a lock is waited for does not end the wait.
INTERRUPTED = """
import signal

def heard(number, frame):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt

def interrupt():
    until_main_is_in("BackgroundSave.wait", "_shutdown")
    while signal.getsignal(signal.SIGINT) is heard:
        os.kill(os.getpid(), signal.SIGINT)
    until_main_is_in(released_in)
    held.set()

signal.signal(signal.SIGINT, heard)
beside(interrupt)
"""


def test_a_ctrl_c_ends_the_wait_but_not_the_save(tmp_path):
    waiting = """
try:
    saver.wait()
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it was not interrupted")
"""
    finish("released_in = '_shutdown'" + INTERRUPTED + waiting, tmp_path)
    assert (read_checkpoint(tmp_path / "model.ckpt-1").arrays["weights"] == 1).all()


def test_a_ctrl_c_while_the_interpreter_exits_does_not_lose_it(tmp_path):
    finish("released_in = '_finish'" + INTERRUPTED, tmp_path, "KeyboardInterrupt")
    assert (read_checkpoint(tmp_path / "model.ckpt-1").arrays["weights"] == 1).all()


@pytest.mark.parametrize("started", [True, False])
def test_a_ctrl_c_while_its_thread_starts_leaves_no_doubt(
    saver, tmp_path, at_step, held_disk, monkeypatch, started
):
    sess, base = at_step(1), tmp_path / "model.ckpt"
    start = threading.Thread.start

    def interrupted(self):
        if started:
            start(self)
            held_disk.arrived.wait(60)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        saver.save(sess, base, global_step=1)
    assert sess.checkpoint == (f"{base}-1" if started else None)
    held_disk.release()
    saver.wait()
    assert steps(tmp_path) == [1] * started
    saver.save(at_step(2), base, global_step=2)
    saver.wait()
    assert steps(tmp_path) == [2]


def test_a_ctrl_c_before_anything_is_written_is_no_checkpoint(
    saver, tmp_path, at_step, monkeypatch
):
    sess = at_step(1)

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("runhooks.checkpoint.saver.BackgroundSave.start", interrupted)
        saver.save(sess, tmp_path / "model.ckpt", global_step=1)
    assert sess.checkpoint is None
    saver.wait()
