"""The watchdog, in processes of their own that really hang; all of them run at once."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runhooks as rh

# Its output, where the log and the stacks go, is the file sys.argv[1].
PROGRAM = """
import ctypes, gc, logging, os, signal, sys, threading, time
import runhooks as rh
from runhooks.graph.build import get_or_create_global_step

signal.alarm(60)  # should it hang for good
logging.basicConfig(format="%(levelname)s %(message)s")

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

def told(*names):
    text = ""
    for name in names or sys.argv[1:]:
        with open(name) as file:
            text += file.read()
    return text

def nothing():
    pass

def a_step_that_hangs():  # until that was logged, and the last stack, this one, is written
    before = told()
    for words in ("ERROR no run has ended", "in <module>"):
        while told().count(words) == before.count(words):
            time.sleep(0.05)

def a_step_until_all_is_well():
    while "the loop goes on" not in told():
        time.sleep(0.05)

def a_step_that_keeps_the_lock():
    hang_with_the_lock(3)

def a_step_that_never_ends():
    time.sleep(60)

def a_step_that_never_gives_the_lock_back():
    hang_with_the_lock(60)
"""

SCENES = {
    "a step hangs, and then one that keeps the lock": """
        threading.Thread(target=threading.Event().wait, name="idle", daemon=True).start()
        loop(rh.WatchdogHook(1), nothing, nothing, a_step_that_hangs, a_step_until_all_is_well,
             a_step_that_keeps_the_lock, nothing)
        print("ended well")
    """,
    "a_step_that_never_ends": """
        loop(rh.WatchdogHook(2, abort=True), nothing, a_step_that_never_ends)
    """,
    "a_step_that_never_gives_the_lock_back": """
        loop(rh.WatchdogHook(2, abort=True), nothing, a_step_that_never_gives_the_lock_back)
    """,
    "the first run": """
        long_step = lambda: time.sleep(2)
        loop(rh.WatchdogHook(1, first_secs=3600), long_step, nothing, a_step_that_hangs)
    """,
    "between two runs": """
        with rh.Graph().as_default():
            step = get_or_create_global_step().assign_add(1)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(1)]) as sess:
                sess.run(step)
                a_step_that_hangs()
    """,
    "two sessions": """
        over = threading.Event()
        a_moment = lambda: time.sleep(0.01)

        def busy():
            loop_over(rh.WatchdogHook(2), iter(lambda: over.is_set() or a_moment, True))

        busy = threading.Thread(target=busy)
        busy.start()
        loop(rh.WatchdogHook(2), nothing, a_step_that_hangs)
        over.set()
        busy.join()
    """,
    "nothing is watched": """
        def fail():
            raise ZeroDivisionError

        loop(rh.WatchdogHook(1), nothing)
        try:
            loop(rh.WatchdogHook(1), nothing, fail)
        except ZeroDivisionError:
            pass
        with rh.Graph().as_default():
            step = get_or_create_global_step().assign_add(1)
            sess = rh.MonitoredSession(hooks=[rh.WatchdogHook(1, abort=True)])
            sess.run(step)
            del sess  # one that is dropped does not hang
            gc.collect()
        while threading.active_count() > 1:
            time.sleep(0.05)
        a_step_that_keeps_the_lock()
    """,
    "evaluations": """
        with rh.Graph().as_default():
            x = rh.placeholder("x")
            slow = rh.call(lambda x: time.sleep(0.15) or x, x)
            step = get_or_create_global_step().assign_add(1)
            evaluation = rh.EvaluationHook({"x": slow}, [{x: 1.0}] * 20, every_n_steps=2)
            with rh.MonitoredSession(hooks=[rh.WatchdogHook(2), evaluation]) as sess:
                for _ in range(3):
                    sess.run(step)
    """,
    "a file": """
        stacks = sys.argv[1] + ".stacks"
        sys.argv.append(stacks)
        loop(rh.WatchdogHook(1, file=open(stacks, "w")), nothing, a_step_that_hangs)
    """,
}


FORKS = """
def fork(act=lambda: None):
    child = os.fork()
    if not child:
        act()
        sys.exit(7)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

another = lambda: loop(rh.WatchdogHook(600), nothing)
loop(rh.WatchdogHook(600), nothing, fork, lambda: fork(another), nothing)
loop(rh.WatchdogHook(0.4), fork, a_step_that_hangs)
"""


@pytest.fixture(scope="module")
def started(plain_launcher, tmp_path_factory):
    """Starts all scenes; they mostly wait."""
    folder = tmp_path_factory.mktemp("watchdog")
    found = {}
    for name, code in SCENES.items():
        program, log = folder / f"{len(found)}.py", folder / f"{len(found)}.log"
        indented = code.replace("\n        ", "\n")
        program.write_text(PROGRAM + indented)
        log.touch()
        found[name] = plain_launcher.start(log, program, log), log
    return plain_launcher, found


@pytest.fixture
def ended(started):
    """Waits for the end of a scene; its exit status, and what it wrote."""

    def ended(name):
        launcher, found = started
        process, log = found[name]
        return launcher.wait(process), log.read_text()

    return ended


@pytest.mark.slow
def test_a_step_that_hangs_shows_all_stacks_once_and_goes_on(ended):
    status, text = ended("a step hangs, and then one that keeps the lock")
    assert status == 0
    assert text.endswith("ended well\n")
    assert "ERROR no run has ended for 1 seconds, since global step 2: the stacks" in text
    _, first, second = text.split("Timeout")
    assert first.count("(most recent call first)") >= 3  # the idle and the watching threads too
    assert first.count("in a_step_that_hangs") == 1
    assert re.search(r"WARNING the loop goes on, after [\d.]+ seconds", first)
    assert second.count("in a_step_that_keeps_the_lock") == 1


@pytest.mark.parametrize(
    "hang", ["a_step_that_never_ends", "a_step_that_never_gives_the_lock_back"]
)
def test_abort(ended, hang):
    status, text = ended(hang)
    assert status == 1
    assert f"in {hang}" in text
    if hang == "a_step_that_never_ends":  # else there is nobody to write it
        assert "since global step 1" in text
        assert "and the process is aborted" in text


def test_the_first_run_may_take_longer(ended):
    status, text = ended("the first run")
    assert status == 0
    assert text.count("ERROR no run has ended") == 1
    assert "since global step 2" in text


def test_a_loop_that_hangs_between_two_runs(ended):
    status, text = ended("between two runs")
    assert status == 0
    assert text.count("in a_step_that_hangs") == 1


def test_two_sessions_are_watched_at_once(ended):
    status, text = ended("two sessions")
    assert status == 0
    assert text.count("ERROR no run has ended") == 1
    assert text.count("Timeout") == 1


@pytest.mark.parametrize("scene", ["nothing is watched", "evaluations"])
def test_nothing_is_written_after_the_end_or_a_failure_or_in_evaluations(ended, scene):
    assert ended(scene) == (0, "")


def test_the_stacks_go_to_a_file(ended, started):
    status, text = ended("a file")
    assert status == 0
    _, log = started[1]["a file"]
    assert "in a_step_that_hangs" in Path(f"{log}.stacks").read_text()
    assert "in a_step_that_hangs" not in text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_ends_as_if_there_were_none_and_its_parent_is_still_watched(tmp_path):
    log = tmp_path / "log"  # a launched program would not end as an interpreter does
    with log.open("w") as file:
        command = [sys.executable, "-c", PROGRAM + FORKS, log]
        done = subprocess.run(command, stdout=file, stderr=file, check=False)
    assert done.returncode == 0
    assert log.read_text().count("ended with 7") == 3
    assert log.read_text().count("in a_step_that_hangs") == 1


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_a_stderr_without_file_descriptor_is_refused(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(ValueError, match="file"):
        rh.WatchdogHook(10)


@pytest.mark.parametrize("arguments", [{"secs": 0}, {"secs": 1, "first_secs": -1}])
def test_seconds_must_be_above_zero(arguments):
    with pytest.raises(ValueError, match="secs"):
        rh.WatchdogHook(**arguments)
