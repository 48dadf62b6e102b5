"""A hook that says when it is next due is not called before, and never misses its moment."""

import math

import pytest

import runhooks as rh
from runhooks.testing import FakeClock, RecordingHook
from runhooks.trigger import Due


class Sleeper(RecordingHook):
    """Records the global step at each of its calls; sleeps until ``due``."""

    def __init__(self, due, **kwargs):
        super().__init__(**kwargs)
        self.due = due
        self.steps = []

    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        self.steps.append(run_context.session.global_step)

    def next_due(self):
        return self.due() if callable(self.due) else self.due


@pytest.fixture
def run_steps(model):
    def run(hook, steps):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(steps):
                sess.run(model.train_op)

    return run


def test_hook_due_at_a_step_is_called_in_the_run_that_reaches_it(run_steps):
    hook = Sleeper(lambda: Due(step=(hook.steps[-1] if hook.steps else 0) + 3))
    run_steps(hook, 10)
    assert hook.steps == [3, 6, 9]
    assert hook.methods.count("before_run") == 3


def test_hook_due_in_runs_is_called_at_the_nth_run_from_now(run_steps):
    hook = Sleeper(Due(runs=2))
    run_steps(hook, 7)
    assert hook.steps == [2, 4, 6]


def test_hook_due_at_a_time_is_called_in_the_first_run_from_then_on(model):
    with FakeClock(start=100.0) as clock:
        hook = Sleeper(lambda: Due(time=(clock.monotonic() + 10) // 10 * 10))
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(8):
                sess.run(model.train_op)
                clock.advance(4)
    # Runs at 100, 104, ... 128 seconds; due at 110, then at 120.
    assert hook.steps == [4, 6]


def test_the_first_of_the_moments_counts(run_steps):
    hook = Sleeper(Due(step=5, runs=2))
    run_steps(hook, 5)
    assert hook.steps == [2, 4, 5]


def test_hook_that_is_never_due_is_called_only_at_the_ends(run_steps):
    hook = Sleeper(Due())
    run_steps(hook, 3)
    assert hook.methods == ["begin", "after_create_session", "end"]


def test_step_that_jumps_past_the_due_one_calls_after_run_alone_without_results(graph):
    step = rh.train.get_or_create_global_step()
    jump = step.assign_add(10)

    hook = Sleeper(lambda: Due(step=math.inf if hook.steps else 5), fetches=step)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(jump)
        sess.run(jump)
    assert hook.methods == ["begin", "after_create_session", "after_run", "end"]
    assert hook.results == [None]
    assert hook.steps == [10]


def test_sleeping_hook_asks_for_nothing(graph):
    computed = []

    def expensive(x):
        computed.append(x)
        return x

    step = rh.train.get_or_create_global_step()
    expensive_tensor = rh.call(expensive, step)
    hook = Sleeper(lambda: Due(step=4 if not hook.steps else math.inf), fetches=expensive_tensor)
    train_op = step.assign_add(1)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(train_op)
        assert computed == []
        sess.run(train_op)
    assert len(computed) == 1
    assert hook.results == [3]
