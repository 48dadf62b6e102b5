"""The watchdog, in processes of their own that really hang."""

import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import runhooks as rh

# Reads the files of its arguments, where the stacks go.
PROGRAM = """
import ctypes, logging, sys, threading, time
import runhooks as rh
from runhooks.graph.build import get_or_create_global_step

logging.basicConfig(format="%(levelname)s %(message)s")  # as the stacks, to stderr

def hang_with_the_lock(secs):
    ctypes.PyDLL(None).usleep(int(secs * 1e6))  # PyDLL: the interpreter lock is kept

def loop(hook, *steps):
    loop_over(hook, steps)

def loop_over(hook, steps):
    with rh.Graph().as_default():
        todo = rh.placeholder("todo")
        add = get_or_create_global_step().assign_add(1)
        train_op = rh.group(rh.call(lambda act: act(), todo), add)
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for step in steps:
                sess.run(train_op, {todo: step})

def told():
    text = ""
    for name in sys.argv[1:]:
        with open(name) as file:
            text += file.read()
    return text

def nothing():
    pass

def a_step_that_hangs():  # until that was logged, and the last stack, this one, is written
    before = told()
    for words in ("ERROR no run has ended", "in <module>"):
        while told().count(words) == before.count(words):
            time.sleep(0.01)

def a_step_until_all_is_well():
    while "the loop goes on" not in told():
        time.sleep(0.01)

def a_long_step():
    time.sleep(2)

def a_step_that_keeps_the_lock():
    hang_with_the_lock(3)

def a_step_that_never_ends():
    time.sleep(60)

def a_step_that_never_gives_the_lock_back():
    hang_with_the_lock(60)
"""


def run(code, *files):
    program = PROGRAM + textwrap.dedent(code)
    with tempfile.NamedTemporaryFile("w+") as told:
        command = [sys.executable, "-c", program, told.name, *files]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=told, text=True, timeout=100)
        done.stderr = Path(told.name).read_text()
    return done


def test_a_step_that_hangs_shows_all_stacks_and_goes_on():
    done = run("""
        threading.Thread(target=threading.Event().wait, name="idle", daemon=True).start()
        loop(rh.WatchdogHook(1), nothing, nothing, a_step_that_hangs, a_step_until_all_is_well)
        print("ended well")
    """)
    assert (done.returncode, done.stdout) == (0, "ended well\n")
    assert "ERROR no run has ended for 1 seconds, since global step 2: the stacks" in done.stderr
    stacks = done.stderr.split("Timeout", 1)[1]
    assert stacks.count("(most recent call first)") >= 3  # the idle and the watching threads too
    assert stacks.count("in a_step_that_hangs") == 1
    assert re.search(r"WARNING the loop goes on, after [\d.]+ seconds", stacks)


def test_each_hang_is_shown_once():
    done = run("""
        loop(rh.WatchdogHook(1), nothing, a_step_that_hangs, a_step_until_all_is_well,
             a_step_that_keeps_the_lock, nothing)
    """)
    assert done.returncode == 0
    assert done.stderr.count("in a_step_that_hangs") == 1
    assert done.stderr.count("in a_step_that_keeps_the_lock") == 1
    assert done.stderr.count("Timeout") == 2


@pytest.mark.parametrize(
    "hang", ["a_step_that_never_ends", "a_step_that_never_gives_the_lock_back"]
)
def test_abort(hang):
    done = run(f"loop(rh.WatchdogHook(4, abort=True), nothing, {hang})")
    assert done.returncode == 1
    assert f"in {hang}" in done.stderr
    if hang == "a_step_that_never_ends":  # else there is nobody to write it
        assert "since global step 1" in done.stderr
        assert "and the process is aborted" in done.stderr


def test_the_first_run_may_take_longer():
    done = run("""
        loop(rh.WatchdogHook(1, first_secs=3600), a_long_step, nothing, a_step_that_hangs)
    """)
    assert done.returncode == 0
    assert done.stderr.count("ERROR no run has ended") == 1
    assert "since global step 2" in done.stderr


def test_a_loop_that_hangs_between_two_runs():
    done = run("""
        with rh.Graph().as_default():
            step = get_or_create_global_step().assign_add(1)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(1)]) as sess:
                sess.run(step)
                a_step_that_hangs()
    """)
    assert done.returncode == 0
    assert done.stderr.count("in a_step_that_hangs") == 1


def test_two_sessions_are_watched_at_once():
    done = run("""
        over = threading.Event()

        def busy():
            loop_over(rh.WatchdogHook(2), iter(lambda: over.is_set() or nothing, True))

        busy = threading.Thread(target=busy)
        busy.start()
        loop(rh.WatchdogHook(2), nothing, a_step_that_hangs)
        over.set()
        busy.join()
    """)
    assert done.returncode == 0
    assert done.stderr.count("ERROR no run has ended") == 1
    assert done.stderr.count("Timeout") == 1


def test_nothing_is_watched_after_the_end_or_a_failure():
    done = run("""
        def fail():
            raise ZeroDivisionError

        loop(rh.WatchdogHook(1), nothing)
        try:
            loop(rh.WatchdogHook(1), nothing, fail)
        except ZeroDivisionError:
            pass
        assert threading.active_count() == 1
        a_step_that_keeps_the_lock()
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_that_is_dropped_does_not_hang():
    done = run("""
        import gc
        with rh.Graph().as_default():
            step = get_or_create_global_step().assign_add(1)
            sess = rh.MonitoredSession(hooks=[rh.WatchdogHook(1, abort=True)])
            sess.run(step)
            del sess
            gc.collect()
        a_long_step()
        print("alive")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def test_evaluations_count():
    done = run("""
        with rh.Graph().as_default():
            x = rh.placeholder("x")
            slow = rh.call(lambda x: time.sleep(0.15) or x, x)
            step = get_or_create_global_step().assign_add(1)
            evaluation = rh.EvaluationHook({"x": slow}, lambda: [{x: 1.0}] * 20, every_n_steps=2)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(2), evaluation]) as sess:
                for _ in range(3):
                    sess.run(step)
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_stacks_go_to_a_file(tmp_path):
    path = tmp_path / "stacks.txt"
    path.touch()
    done = run(
        "loop(rh.WatchdogHook(1, file=open(sys.argv[2], 'w')), nothing, a_step_that_hangs)",
        str(path),
    )
    assert done.returncode == 0
    assert "in a_step_that_hangs" in path.read_text()
    assert "in a_step_that_hangs" not in done.stderr


def test_a_stderr_without_file_descriptor_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.raises(ValueError, match="file"):
        rh.WatchdogHook(10)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(ValueError, match="file"):
        rh.WatchdogHook(10)


def test_seconds_must_be_above_zero(tmp_path):
    with pytest.raises(ValueError, match="secs"):
        rh.WatchdogHook(0)
    with pytest.raises(ValueError, match="first_secs"):
        rh.WatchdogHook(1, first_secs=-1)


def test_it_takes_part_in_no_run(model, tmp_path):
    with (tmp_path / "stacks").open("w") as file:
        hook = rh.WatchdogHook(600, file=file)
        assert type(hook).before_run is rh.SessionRunHook.before_run
        assert type(hook).after_run is rh.SessionRunHook.after_run
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run(model.train_op)


@pytest.mark.parametrize("act", ["sys.exit(7)", "train(rh.WatchdogHook(600)); sys.exit(7)"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_process_that_is_forked_meanwhile_ends_as_if_there_were_none(act):
    done = run(f"""
        import os

        def train(hook):
            loop(hook, nothing, nothing)

        def fork():
            child = os.fork()
            if not child:
                {act}
            print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        train_in = rh.WatchdogHook(600)
        loop(train_in, nothing, fork, nothing)
    """)
    assert done.stdout.endswith("ended with 7\n")
    assert done.returncode == 0


def test_process_that_has_forked_is_still_watched():
    done = run("""
        import os

        def fork():
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

        loop(rh.WatchdogHook(0.4), fork, a_step_that_hangs)
    """)
    assert done.returncode == 0
    assert done.stderr.count("in a_step_that_hangs") == 1
