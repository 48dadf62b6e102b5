"""The watchdog, in processes of their own that really hang."""

import io
import re
import subprocess
import sys
import textwrap

import pytest

import runhooks as rh

PROGRAM = """
import ctypes, logging, sys, threading, time
import runhooks as rh
from runhooks.graph.global_step import get_or_create_global_step

logging.basicConfig(format="%(levelname)s %(message)s")  # as the stacks, to stderr

def hang_with_the_lock(secs):
    ctypes.PyDLL(None).usleep(int(secs * 1e6))  # PyDLL: the interpreter lock is kept

def loop(hook, *steps):
    with rh.Graph().as_default():
        todo = rh.placeholder("todo")
        add = get_or_create_global_step().assign_add(1)
        train_op = rh.group(rh.call(lambda act: act(), todo), add)
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for step in steps:
                sess.run(train_op, {todo: step})

def nothing():
    pass

def a_short_step():
    time.sleep(0.1)

def a_step_that_hangs():
    time.sleep(1.5)

def a_step_that_keeps_the_lock():
    hang_with_the_lock(1.5)

def a_step_that_never_ends():
    time.sleep(60)

def a_step_that_never_gives_the_lock_back():
    hang_with_the_lock(60)
"""


def run(code):
    program = PROGRAM + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50
    )


def test_a_step_that_hangs_shows_all_stacks_and_goes_on():
    done = run("""
        threading.Thread(target=threading.Event().wait, name="idle", daemon=True).start()
        loop(rh.WatchdogHook(0.4), nothing, nothing, a_step_that_hangs, *[a_short_step] * 3)
        print("ended well")
    """)
    assert (done.returncode, done.stdout) == (0, "ended well\n")
    error, stacks = done.stderr.split("Timeout", 1)
    assert error.startswith(
        "ERROR no run has ended for 0.4 seconds, since global step 2: the stacks"
    )
    assert "in a_step_that_hangs" in stacks
    assert stacks.count("(most recent call first)") >= 3  # the idle and the watching threads too
    assert stacks.count("in a_step_that_hangs") == 1
    assert re.search(r"WARNING the loop goes on, after [\d.]+ seconds", stacks)


def test_each_hang_is_shown_once():
    done = run("""
        loop(rh.WatchdogHook(0.3), nothing, a_step_that_hangs, *[a_short_step] * 10,
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
    done = run(f"loop(rh.WatchdogHook(0.4, abort=True), nothing, {hang})")
    assert done.returncode == 1
    assert f"in {hang}" in done.stderr
    if hang == "a_step_that_never_ends":  # else there is nobody to write it
        assert "since global step 1" in done.stderr
        assert "and the process is aborted" in done.stderr


def test_the_first_run_may_take_longer():
    done = run("""
        loop(rh.WatchdogHook(0.4, first_secs=30), a_step_that_hangs, nothing, a_step_that_hangs)
    """)
    assert done.returncode == 0
    assert done.stderr.count("ERROR no run has ended") == 1
    assert "since global step 2" in done.stderr


def test_a_loop_that_hangs_between_two_runs():
    done = run("""
        class Loader:
            def __iter__(self):
                yield nothing
                a_step_that_hangs()

        loop(rh.WatchdogHook(0.4), *Loader())
        with rh.Graph().as_default():
            step = get_or_create_global_step().assign_add(1)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(0.4)]) as sess:
                sess.run(step)
                a_step_that_hangs()
    """)
    assert done.returncode == 0
    assert done.stderr.count("in a_step_that_hangs") == 1


def test_two_sessions_are_watched_at_once():
    done = run("""
        def busy():
            loop(rh.WatchdogHook(0.4), *[lambda: time.sleep(0.02)] * 100)

        busy = threading.Thread(target=busy)
        busy.start()
        loop(rh.WatchdogHook(0.4), nothing, a_step_that_hangs)
        busy.join()
    """)
    assert done.returncode == 0
    assert done.stderr.count("ERROR no run has ended") == 1
    assert done.stderr.count("Timeout") == 1


def test_nothing_is_watched_after_the_end_or_a_failure():
    done = run("""
        def fail():
            raise ZeroDivisionError

        loop(rh.WatchdogHook(0.2), nothing)
        try:
            loop(rh.WatchdogHook(0.2), nothing, fail)
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
            sess = rh.MonitoredSession(hooks=[rh.WatchdogHook(0.4, abort=True)])
            sess.run(step)
            del sess
            gc.collect()
        time.sleep(1)
        print("alive")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def test_evaluations_count():
    done = run("""
        with rh.Graph().as_default():
            x = rh.placeholder("x")
            slow = rh.call(lambda x: time.sleep(0.05) or x, x)
            step = get_or_create_global_step().assign_add(1)
            evaluation = rh.EvaluationHook({"x": slow}, lambda: [{x: 1.0}] * 20, every_n_steps=2)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(0.5), evaluation]) as sess:
                for _ in range(3):
                    sess.run(step)
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_stacks_go_to_a_file(tmp_path):
    path = tmp_path / "stacks.txt"
    done = run(f"""
        loop(rh.WatchdogHook(0.4, file=open({str(path)!r}, "w")), nothing, a_step_that_hangs)
    """)
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
