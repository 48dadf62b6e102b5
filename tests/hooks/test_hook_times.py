import logging

import pytest

import runhooks as rh
from runhooks.testing import read_events


class Slow(rh.SessionRunHook):
    """Takes ``before`` and ``after`` seconds in every run."""

    def __init__(self, clock, before=0.0, after=0.0):
        self.clock, self.before, self.after = clock, before, after

    def before_run(self, run_context):
        self.clock.advance(self.before)

    def after_run(self, run_context, run_values):
        self.clock.advance(self.after)


class EveryFourth(Slow):
    """The same once in four runs."""

    def next_due(self):
        return rh.Due(runs=4)

    before_run, after_run = Slow.before_run, Slow.after_run


@pytest.fixture
def timed_train(model, fake_clock):
    """Makes steps that take 4 seconds without their hooks."""

    def train(*hooks, steps):
        with rh.MonitoredSession(hooks=list(hooks)) as sess:
            for _ in range(steps):
                fake_clock.advance(4)
                sess.run(model.train_op)

    return train


def test_tells_what_each_hook_costs(timed_train, fake_clock):
    hook = rh.HookTimesHook(every_n_steps=10)
    timed_train(Slow(fake_clock, 0.25, 0.75), hook, Slow(fake_clock, after=3), steps=11)
    assert list(hook.times)[:2] == ["Slow_1", "Slow"]
    assert hook.times["Slow"] == pytest.approx((1e6, 100 * 1 / 8))
    assert hook.times["Slow_1"] == pytest.approx((3e6, 100 * 3 / 8))
    assert hook.times["HookTimesHook"] == (0, 0)


def test_hooks_that_slept_cost_nothing(timed_train, fake_clock):
    hook = rh.HookTimesHook(every_n_steps=8)
    sleeper = rh.TimeLimitHook(1000)
    timed_train(hook, EveryFourth(fake_clock, after=2), sleeper, steps=8)
    assert hook.times["EveryFourth"].us_per_step == pytest.approx(2e6 / 7)
    assert "TimeLimitHook" not in hook.times


def test_a_hook_goes_by_its_own_name(timed_train, fake_clock):
    hook, slow = rh.HookTimesHook(every_n_steps=2), Slow(fake_clock, after=1)
    slow.hook_name = "the slow one"
    timed_train(slow, hook, steps=3)
    assert hook.times["the slow one"].us_per_step == pytest.approx(1e6)


def test_each_table_is_of_the_time_since_the_one_before(timed_train, fake_clock, tmp_path):
    class Growing(Slow):
        def after_run(self, run_context, run_values):
            self.clock.advance(run_context.session.global_step)

    hook = rh.HookTimesHook(every_n_steps=2, output_dir=tmp_path)
    timed_train(Growing(fake_clock), hook, steps=4)
    written = [(s.step, s.value) for s in read_events(tmp_path) if "Growing" in s.tag]
    assert written == [(2, pytest.approx(2e6)), (4, pytest.approx(3.5e6))]


def test_writes_and_logs_them(timed_train, fake_clock, caplog, tmp_path):
    caplog.set_level(logging.INFO, logger="runhooks")
    hook = rh.HookTimesHook(every_n_steps=2, output_dir=tmp_path)
    timed_train(hook, Slow(fake_clock, after=4), steps=3)
    assert {s.tag: s.value for s in read_events(tmp_path)} == {
        "hook_times/Slow_us_per_step": 4e6,
        "hook_times/HookTimesHook_us_per_step": 0,
    }
    assert [" ".join(line.split()) for line in caplog.messages[0].splitlines()] == [
        "the cost of each hook, at step 2:",
        "Slow 4000000.0 us/step 50.0 %",
        "HookTimesHook 0.0 us/step 0.0 %",
    ]
