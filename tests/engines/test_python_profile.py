import json
import sys
import threading

import pytest

from runhooks.engines.python_profile import PythonProfile, start_python_profile
from runhooks.testing import FakeClock


def inner(clock):
    clock.advance(0.25)


def outer(clock):
    inner(clock)
    clock.advance(0.5)
    return len("abc")


def calls(path):
    trace = json.loads(path.read_text())
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def named(path, *names):
    return [event for event in calls(path) if event["name"] in names]


def test_calls_with_their_times_in_microseconds(tmp_path):
    with FakeClock() as clock:
        stop = start_python_profile(tmp_path, 7)
        clock.advance(1)
        outer(clock)
        path = stop()
    assert path == tmp_path / "timeline-7.json"
    found = {e["name"]: (e["ts"], e["dur"]) for e in named(path, "outer", "inner", "len")}
    assert found == {"outer": (1e6, 0.75e6), "inner": (1e6, 0.25e6), "len": (1.75e6, 0.0)}
    (event,) = named(path, "inner")
    assert event["args"]["at"].endswith(f"test_python_profile.py:{inner.__code__.co_firstlineno}")
    assert event["tid"] == threading.get_ident()


def test_a_call_that_raises_has_ended(tmp_path):
    def fails():
        raise KeyError

    with FakeClock() as clock:
        stop = start_python_profile(tmp_path, 1)
        with pytest.raises(KeyError):
            fails()
        clock.advance(9)
        path = stop()
    (event,) = [e for e in calls(path) if e["name"].endswith("fails")]
    assert event["dur"] == 0.0


def test_a_call_that_has_not_returned_lasts_to_the_end(tmp_path):
    def unfinished():
        clock.advance(2)
        profile.stop()

    with FakeClock() as clock:
        profile = PythonProfile()
        unfinished()
        profile.write(tmp_path / "trace.json")
    (event,) = [e for e in calls(tmp_path / "trace.json") if e["name"].endswith("unfinished")]
    assert event["dur"] == 2e6


def test_threads_started_meanwhile_are_in_it_under_their_names(tmp_path):
    def work():
        outer(clock)
        done.set()
        stopped.wait()

    done, stopped = threading.Event(), threading.Event()
    with FakeClock() as clock:
        stop = start_python_profile(tmp_path, 1)
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        done.wait()
        path = stop()
        stopped.set()
        thread.join()
    (event,) = named(path, "outer")
    assert event["tid"] == thread.ident
    names = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "M"]
    assert {"worker", threading.current_thread().name} <= {e["args"]["name"] for e in names}


def test_there_is_a_limit_to_what_it_holds(tmp_path):
    profile = PythonProfile(most_calls=100)
    for _ in range(1000):
        abs(1)
    profile.stop()
    profile.write(tmp_path / "trace.json")
    assert len(calls(tmp_path / "trace.json")) == 100
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"]["dropped_calls"] >= 900


def test_a_call_lasts_as_long_as_it_does_whatever_is_dropped(tmp_path):
    def many():
        for _ in range(1000):
            inner(clock)

    with FakeClock() as clock:
        profile = PythonProfile(most_calls=100)
        many()
        clock.advance(9)
        profile.stop()
        profile.write(tmp_path / "trace.json")
    (event,) = [e for e in calls(tmp_path / "trace.json") if e["name"].endswith("many")]
    assert event["dur"] == 250e6


def test_a_thread_that_outlives_it_is_left_alone(tmp_path):
    def work():
        started.set()
        stopped.wait()
        left.append(sys.getprofile())

    started, stopped, left = threading.Event(), threading.Event(), []
    stop = start_python_profile(tmp_path, 1)
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    stop()
    stopped.set()
    thread.join()
    assert left == [None]


def test_when_it_has_ended_no_profiler_is_left(tmp_path):
    start_python_profile(tmp_path, 1)()
    assert sys.getprofile() is None
    assert threading.getprofile() is None


def test_a_profiler_that_runs_is_left_alone():
    def other(*args):
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="another Python profiler is running"):
            PythonProfile()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)
