import inspect
import math
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import runhooks as rh
from runhooks.testing import FakeClock
from runhooks.trigger import DefaultSecs, DefaultSteps, Timer, timer_of, trigger_of

# What a loop does: steps that a run makes, 0 if it trains nothing, and seconds that it takes.
RUNS = st.lists(st.tuples(st.integers(0, 9), st.floats(0, 9)), max_size=40)
ON_STEPS = st.frozensets(st.integers(1, 60), max_size=6)
TRIGGERS = st.one_of(
    st.builds(rh.Trigger, every_steps=st.integers(1, 12), on_steps=ON_STEPS),
    st.builds(rh.Trigger, every_secs=st.floats(0.1, 12), on_steps=ON_STEPS),
    st.builds(rh.Trigger, every_steps=st.integers(1, 12), every_secs=st.floats(0.1, 12)),
    st.builds(rh.Trigger, on_steps=ON_STEPS.filter(bool)),
    st.just(rh.Trigger(at_end=True)),
)


def triggered(timer, steps):
    """Those of ``steps``, in order, at which ``timer`` triggers."""
    found = []
    for step in steps:
        if timer.should_trigger_for_step(step):
            timer.update_last_triggered_step(step)
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "every_steps, every_secs, every_epochs, on_steps and at_end"),
        ({"every_steps": 0}, ValueError, "every_steps"),
        ({"every_steps": 2.5}, TypeError, r"every_steps .*2\.5"),
        ({"every_secs": -1.5}, ValueError, "every_secs"),
        ({"on_steps": [3, 0]}, ValueError, "on_steps"),
        ({"every_epochs": 0.0004}, ValueError, r"every_epochs .*0\.0004.*by steps"),
        ({"every_epochs": float("inf")}, ValueError, "every_epochs .*finite"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        rh.Trigger(**arguments)
    assert rh.Trigger(every_steps=1e3).every_steps == 1000


def test_no_seconds_between_are_every_step():
    timer = rh.SecondOrStepTimer(every_secs=0)
    assert triggered(timer, [1, 2, 2, 3]) == [1, 2, 3]


TRIGGER = rh.Trigger(every_steps=7)


@pytest.mark.parametrize(
    ("trigger", "steps", "secs", "named"),
    [
        (None, None, None, "none"),
        (TRIGGER, 2, None, "save_steps=2 and trigger="),
        (TRIGGER, None, 2.0, "save_secs=2.0 and trigger="),
        (None, 1, 2.0, "save_steps=1 and save_secs=2.0"),
        (TRIGGER, 1, 2.0, "save_steps=1 and save_secs=2.0 and trigger="),
    ],
)
def test_a_hook_takes_one_cadence(trigger, steps, secs, named):
    with pytest.raises(ValueError, match=f"save_steps, save_secs and trigger .*{named}"):
        timer_of(trigger, save_steps=steps, save_secs=secs)


@pytest.mark.parametrize(
    ("trigger", "steps", "secs", "meant"),
    [
        (None, DefaultSteps(100), None, rh.Trigger(every_steps=100)),
        (None, None, DefaultSecs(60.0), rh.Trigger(every_secs=60.0)),
        (TRIGGER, DefaultSteps(100), None, TRIGGER),
        (TRIGGER, None, DefaultSecs(60.0), TRIGGER),
        (TRIGGER, None, None, TRIGGER),
        (None, DefaultSteps(100), 60, rh.Trigger(every_secs=60)),
        (None, 100, DefaultSecs(60.0), rh.Trigger(every_steps=100)),
    ],
)
def test_a_default_gives_way_to_what_is_given(trigger, steps, secs, meant):
    assert trigger_of(trigger, every_n_steps=steps, every_n_secs=secs) == meant


def test_a_default_reads_as_its_value():
    def hook(every_n_steps: int = DefaultSteps(100), secs: float = DefaultSecs(60.0)):
        pass

    assert str(inspect.signature(hook)).endswith("= 100, secs: float = 60.0)")


def test_a_trigger_is_a_value():
    trigger = rh.Trigger(every_steps=3, on_steps=(1, 2))
    for on_steps in ([2, 1], {1, 2}, range(1, 3), np.array([1, 2])):
        assert rh.Trigger(every_steps=3, on_steps=on_steps) == trigger
    with pytest.raises(AttributeError):
        rh.Trigger(every_steps=3).every_steps = 4


def test_what_comes_first_counts():
    with FakeClock() as clock:
        timer = Timer(rh.Trigger(every_steps=10, every_secs=60, on_steps=[13]))
        assert triggered(timer, range(1, 12)) == [10]
        assert triggered(timer, range(12, 15)) == [13]
        clock.advance(60)
        assert triggered(timer, range(15, 17)) == [15]


def test_seconds_count_from_the_start_of_the_session():
    with FakeClock() as clock:
        timer = Timer(rh.Trigger(every_secs=60))
        clock.advance(110)  # as for loading the data
        timer.start(1)
        clock.advance(59)
        assert triggered(timer, [2]) == []
        assert timer.due().time == clock.monotonic() + 1
        clock.advance(1)
        assert triggered(timer, [3]) == [3]


def test_sessions_that_are_lost_again_and_again_put_off_nothing():
    with FakeClock() as clock:
        timer = Timer(rh.Trigger(every_secs=60))
        clock.advance(60)
        assert triggered(timer, [1]) == [1]
        for _ in range(2):
            clock.advance(50)
            timer.start(1)
        assert triggered(timer, [2]) == [2]


def test_at_the_end_it_triggers_unless_it_has():
    timer = Timer(rh.Trigger(every_steps=4, at_end=True))
    assert triggered(timer, range(1, 6)) == [4]
    assert not timer.should_trigger_at_end(4)
    assert timer.should_trigger_at_end(5)
    assert not Timer(rh.Trigger(every_steps=4)).should_trigger_at_end(6)


@given(st.integers(1, 12), st.integers(0, 30), RUNS)
def test_a_trigger_acts_on_round_steps_wherever_it_starts(n, start, runs):
    steps = list(accumulate((made for made, _ in runs), initial=start))[1:]
    timer = Timer(rh.Trigger(every_steps=n))
    timer.start(start)
    reached = [steps[-1]] if steps else [start]
    round_steps = range((start // n + 1) * n, reached[0] + 1, n)
    first_from = [min(step for step in steps if step >= wanted) for wanted in round_steps]
    assert triggered(timer, steps) == sorted(set(first_from))


@given(st.integers(1, 12), RUNS)
def test_tensorflows_timer_acts_at_the_first_step_and_n_steps_later(n, runs):
    steps = list(accumulate(made for made, _ in runs))
    found = triggered(rh.SecondOrStepTimer(every_steps=n), steps)
    assert found[:1] == steps[:1]
    for before, after in pairwise([*found, math.inf]):
        assert after >= before + n
        assert all(step < before + n for step in steps if before < step < after)


@given(ON_STEPS.filter(bool), RUNS)
def test_a_named_step_that_is_jumped_over_is_made_up_for_once(on_steps, runs):
    steps = list(accumulate(made for made, _ in runs))
    timer = Timer(rh.Trigger(on_steps=on_steps))
    timer.start(0)
    reached = {min((s for s in steps if s >= wanted), default=None) for wanted in on_steps}
    assert triggered(timer, steps) == sorted(reached - {None})


@given(TRIGGERS, RUNS)
def test_it_is_due_by_the_time_it_triggers_and_never_twice_at_a_step(trigger, runs):
    with FakeClock() as clock:
        timer = Timer(trigger)
        timer.start(0)
        step = 0
        for made, secs in runs:
            due, step, last = timer.due(), step + made, timer.last_triggered_step()
            clock.advance(secs)
            is_due = step >= due.step or clock.monotonic() >= due.time
            if timer.should_trigger_for_step(step):
                assert is_due
                assert step != last
                timer.update_last_triggered_step(step)
                assert not timer.should_trigger_for_step(step)
            elif is_due:  # it may be asked in vain only at the step that triggered last
                assert step == last


@given(TRIGGERS.filter(lambda trigger: trigger.every_secs is None), RUNS, st.data())
def test_a_run_that_is_resumed_triggers_as_one_that_was_never_stopped(trigger, runs, data):
    steps = list(accumulate(made for made, _ in runs))
    cut = data.draw(st.integers(0, len(steps)))
    undisturbed = Timer(trigger)
    undisturbed.start(0)
    first = Timer(trigger)
    first.start(0)
    found = triggered(first, steps[:cut])
    second = Timer(trigger)
    second.load_state_dict(first.state_dict())
    second.start(steps[cut - 1] if cut else 0)
    assert found + triggered(second, steps[cut:]) == triggered(undisturbed, steps)


@given(st.integers(1, 12), ON_STEPS, st.integers(0, 60), st.integers(0, 60))
def test_what_was_triggered_after_the_restored_step_happens_again(n, on_steps, lost, restored):
    trigger = rh.Trigger(every_steps=n, on_steps=on_steps)
    timer = Timer(trigger)
    timer.start(0)
    before = triggered(timer, range(1, lost + 1))
    timer.start(min(restored, lost))
    again = triggered(timer, range(min(restored, lost) + 1, 100))
    round_steps = {step for step in range(1, 100) if step % n == 0}
    assert round_steps | on_steps == {*before, *again}
    assert {step for step in round_steps | on_steps if step > min(restored, lost)} == {*again}


def test_elapsed_is_since_the_time_before():
    with FakeClock() as clock:
        timer = rh.SecondOrStepTimer(every_steps=2)
        assert timer.update_last_triggered_step(3) == (None, None)
        clock.advance(1.5)
        assert timer.update_last_triggered_step(7) == (1.5, 4)


def test_seconds_are_counted_anew_from_a_checkpoint():
    with FakeClock() as clock:
        timer = Timer(rh.Trigger(every_secs=10))
        timer.load_state_dict({"last_triggered_step": 4})
        timer.start(4)
        clock.advance(9)
        assert triggered(timer, [5]) == []
        clock.advance(1)
        assert triggered(timer, [6]) == [6]


class NoteSteps(rh.SessionRunHook):
    def __init__(self, every_steps):
        self._timer = rh.Timer(rh.Trigger(every_steps=every_steps))
        self.steps = []

    def begin(self):
        self._timer.reset()

    def after_create_session(self, session, coord):
        self._timer.start(session.global_step, session.epochs)

    def next_due(self):
        return self._timer.due()

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self.steps.append(step)

    def state_dict(self):
        return self._timer.state_dict()

    def load_state_dict(self, state):
        self._timer.load_state_dict(state)


def test_a_hook_that_goes_by_a_timer():
    hook = NoteSteps(every_steps=4)
    with rh.Graph().as_default():
        train_op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(10):
                session.run(train_op)
    assert hook.steps == [4, 8]
    assert hook.state_dict() == {"last_triggered_step": 8}
