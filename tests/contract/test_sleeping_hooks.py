"""Hooks that need not be called in every run: those that sleep, and those that watch a tensor."""

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


# watching


class Watcher(RecordingHook):
    """Watches the loss; records ``(step, loss)``, and in ``due`` those of runs it took part in."""

    def __init__(self, loss, stop_at=None):
        super().__init__()
        self.loss, self.stop_at = loss, stop_at
        self.seen, self.due = [], []

    def watched(self):
        return self.loss

    def watch(self, step, value):
        self.seen.append((step, float(value)))
        return step == self.stop_at

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.due.append((run_context.session.global_step, float(run_values.results)))


@pytest.mark.every_engine
def test_it_gets_the_value_of_every_run_in_one_of_two_ways(model):
    watcher, sleeper = Watcher(model.loss), Sleeper(Due(runs=3))
    with rh.MonitoredSession(hooks=[watcher, sleeper]) as sess:
        for _ in range(6):
            assert sess.run(model.train_op) is None
    # The loss is that of the weights as they were when the run began.
    assert watcher.seen == [(1, 0), (2, 2), (4, 6), (5, 8)]
    assert watcher.due == [(3, 4), (6, 10)]


def test_the_caller_gets_what_it_asked_for_whatever_the_shape(model):
    with rh.MonitoredSession(hooks=[Watcher(model.loss), Watcher(model.loss)]) as sess:
        assert sess.run([model.train_op, "loss:0"]) == [None, 0]
        assert sess.run({"loss": model.loss}) == {"loss": 2}
        assert sess.run((model.loss, (model.loss,))) == (2, (2,))
        fetches = [model.loss]
        assert sess.run(fetches) == [2]
        fetches.append(model.train_op)
        assert sess.run(fetches) == [2, None]
        assert sess.run(model.global_step) == 2


def test_it_may_ask_to_stop(model):
    with rh.MonitoredSession(hooks=[Watcher(model.loss, stop_at=2)]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
        assert (sess.global_step, sess.stop_reason) == (2, "Watcher")


def test_its_errors_say_whose_they_are(model):
    class Broken(Watcher):
        def watch(self, step, value):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        with rh.MonitoredSession(hooks=[Broken(model.loss)]) as sess:
            sess.run(model.train_op)
    assert "in watch of the hook Broken" in caught.value.__notes__


def test_subclass_that_adds_to_a_run_is_called_in_every_run(model):
    class Adds(Watcher):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)

    hook = Adds(model.loss)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert [step for step, _ in hook.due] == [1, 2, 3]
    assert hook.seen == []


def test_a_run_that_goes_further_than_expected_is_watched_once(model):
    step = rh.train.get_or_create_global_step()
    jump = rh.group(model.train_op, step.assign_add(10))
    watcher, sleeper = Watcher(model.loss), Sleeper(Due(step=10))
    with rh.MonitoredSession(hooks=[watcher, sleeper]) as sess:
        sess.run(model.train_op)
        sess.run(jump)
        assert sess.global_step > 10
    assert len(watcher.seen) + len(watcher.due) == 2
    assert "after_run" in str(sleeper.calls)
