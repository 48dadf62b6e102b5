import pstats
import sys

import pytest

from runhooks.engines.numpy.engine import ENGINE


def inner():
    pass


def outer():
    inner()
    inner()
    return len("abc")


def calls(path):
    """How often each function was called, by its name."""
    return {name: stats[1] for (_, _, name), stats in pstats.Stats(str(path)).stats.items()}


def test_calls_of_python_and_of_c(tmp_path):
    stop = ENGINE.start_profile(tmp_path, 7)
    outer()
    path = stop()
    assert path == tmp_path / "profile-7.pstats"
    found = calls(path)
    assert (found["outer"], found["inner"], found["<built-in method builtins.len>"]) == (1, 2, 1)


def test_when_it_cannot_be_written_no_profiler_is_left(tmp_path):
    stop = ENGINE.start_profile(tmp_path / "missing", 1)
    with pytest.raises(FileNotFoundError):
        stop()
    assert sys.getprofile() is None


def test_a_profiler_that_runs_is_left_alone(tmp_path):
    def other(*args):
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="profiler"):
            ENGINE.start_profile(tmp_path, 1)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)
