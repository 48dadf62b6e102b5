import pytest
from hypothesis import given
from hypothesis import strategies as st

from runhooks.hooks.logging_tensor import RunTimer

RUN = None  # by runs or seconds, what a run is does not matter


def triggers(timer, runs):
    """The runs, counted from 1, in which ``timer`` triggers if it is asked in every run."""
    found = []
    for run in range(1, runs + 1):
        if timer.should_trigger(RUN):
            timer.update_last_triggered_step(timer.run)
            found.append(run)
        timer.end_run()
    return found


def announced(timer, runs):
    """The same if it is asked only in the runs that it announces."""
    found, run = [], 0
    while (run := run + int(timer.announce().runs)) <= runs:
        assert timer.should_trigger(RUN)
        timer.update_last_triggered_step(timer.run)
        timer.end_run()
        found.append(run)
    return found


def test_triggers_in_the_first_run_and_every_n_th():
    assert triggers(RunTimer(every_runs=3), 10) == [1, 4, 7, 10]


@given(st.integers(1, 9), st.integers(0, 60))
def test_sleeping_changes_nothing(every_runs, runs):
    expected = triggers(RunTimer(every_runs=every_runs), runs)
    assert announced(RunTimer(every_runs=every_runs), runs) == expected


@given(st.integers(1, 9), st.integers(0, 30))
def test_resuming_goes_on_where_it_was(every_runs, runs_since):
    timer = RunTimer(every_runs=every_runs)
    timer.resume(runs_since)
    first = max(every_runs - runs_since, 1)
    assert announced(timer, first + every_runs) == [first, first + every_runs]


def test_asking_twice_when_it_is_due_is_asking_once():
    timer = RunTimer(every_runs=3)
    assert timer.announce() == timer.announce()
    assert timer.should_trigger(RUN)
    timer.update_last_triggered_step(timer.run)
    timer.end_run()
    assert timer.announce().runs == timer.announce().runs == 3


def test_a_run_that_fails_stays_due():
    timer = RunTimer(every_runs=3)
    timer.announce()
    assert timer.should_trigger(RUN)
    assert timer.should_trigger(RUN)


def test_triggers_by_seconds(fake_clock):
    timer = RunTimer(every_secs=3)
    found = []
    for second in range(8):
        if timer.should_trigger(RUN):
            found.append(second)
            timer.update_last_triggered_step(timer.run)
        timer.end_run()
        assert timer.announce().time == 100 + found[-1] + 3
        fake_clock.advance(1)
    assert found == [0, 3, 6]


@pytest.mark.parametrize("arguments", [{}, {"every_runs": 1, "every_secs": 1}, {"every_runs": 0}])
def test_arguments(arguments):
    with pytest.raises(ValueError, match="must be"):
        RunTimer(**arguments)
