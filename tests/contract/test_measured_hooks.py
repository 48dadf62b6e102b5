"""A hook with a dict ``hook_secs`` is told what the calls of each hook take."""

import pytest

import runhooks as rh
from runhooks.testing import FakeClock, RecordingHook


class Slow(RecordingHook):
    """Takes one second before each run, and two after it."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def before_run(self, run_context):
        self.clock.advance(1)

    def after_run(self, run_context, run_values):
        self.clock.advance(2)


class Measuring(rh.SessionRunHook):
    def __init__(self):
        self.hook_secs = {}


class Watching(Slow):
    def __init__(self, clock, loss):
        super().__init__(clock)
        self.loss = loss

    def watched(self):
        return self.loss


@pytest.mark.parametrize("place", [0, 2])
def test_seconds_of_each_hook_by_name(place, model):
    with FakeClock() as clock:
        measuring = Measuring()
        hooks = [Slow(clock), Watching(clock, model.loss)]
        hooks[1].hook_name = "second"
        hooks.insert(place, measuring)
        with rh.MonitoredSession(hooks=hooks) as sess:
            for _ in range(2):
                sess.run(model.train_op)
    assert measuring.hook_secs == {"Slow": 6, "second": 6}


def test_the_time_of_a_hook_that_raises_counts(model):
    with FakeClock() as clock:

        class Fails(Slow):
            def after_run(self, run_context, run_values):
                super().after_run(run_context, run_values)
                raise ValueError("broken")

        measuring = Measuring()
        with pytest.raises(ValueError, match="broken"):
            with rh.MonitoredSession(hooks=[Fails(clock), measuring]) as sess:
                sess.run(model.train_op)
    assert measuring.hook_secs == {"Fails": 3}
