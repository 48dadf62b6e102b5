"""The clock, the time at which hooks stand, and a clock that tests move."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

import runhooks as rh
from runhooks import clock
from runhooks.testing import FakeClock


def test_ranks_that_are_threads_do_not_share_the_time_of_their_hooks():
    with FakeClock(start=100.0), ThreadPoolExecutor(1) as other, clock.standing_at(5.0):
        stands = clock.standing_at(7.0)
        other.submit(stands.__enter__).result()
        assert clock.hook_times()[0] == 5
        assert other.submit(clock.hook_times).result()[0] == 7
        other.submit(stands.__exit__, None, None, None).result()
        assert other.submit(clock.hook_times).result()[0] == 100
    assert clock.hook_times()[0] != 5


def test_a_time_that_a_test_replaces_moves_timers_and_what_hooks_measure(tmp_path):
    step = rh.graph(lambda count: count + 1, count=0)
    noted = []

    class Notes(rh.SessionRunHook):
        """Is asked in the runs in which its timer is due, and no other."""

        def begin(self):
            self.timer = rh.train.SecondOrStepTimer(every_secs=10)

        def next_due(self):
            return self.timer.due()

        def after_run(self, run_context, run_values):
            at = run_context.session.global_step
            if self.timer.should_trigger_for_step(at):
                noted.append((at, *self.timer.update_last_triggered_step(at)))

    before = clock.monotonic, clock.wall
    with mock.patch.object(time, "time", return_value=1_500_000_000.0) as now, step.as_default():
        speed = rh.StepCounterHook(2, output_dir=tmp_path)
        with rh.MonitoredSession(hooks=[Notes(), speed]) as session:
            for secs in (0, 4, 5, 1, 30):
                now.return_value += secs
                session.run("train_op")
    assert noted == [(1, None, None), (4, 10.0, 3), (5, 30.0, 1)]
    written = rh.events.read(tmp_path)["."].scalars["global_step/sec"]
    assert written.steps.tolist() == [3, 5]
    assert written.values.tolist() == pytest.approx([2 / 9, 2 / 31], rel=1e-6)
    clock.hook_times()
    assert (clock.monotonic, clock.wall) == before
    assert before == (time.monotonic, time.time)


def test_a_clock_in_use_is_not_replaced():
    with FakeClock(start=100.0), mock.patch.object(time, "time", return_value=7.0):
        assert clock.hook_times()[0] == 100


def test_it_is_the_time_of_every_thread_in_the_block_and_moves_by_hand():
    before = time.monotonic()
    with FakeClock(start=10.0, wall_start=1_000.0) as fake:
        assert (clock.monotonic(), clock.wall()) == (10.0, 1_000.0)
        fake.advance(2.5)
        seen = []
        thread = threading.Thread(target=lambda: seen.append((clock.monotonic(), clock.wall())))
        thread.start()
        thread.join()
        assert seen == [(12.5, 1_002.5)]
    assert clock.monotonic() >= before


def test_blocks_nest_and_a_clock_may_be_used_again():
    outer, inner = FakeClock(1.0), FakeClock(2.0)
    with outer:
        with inner:
            assert clock.monotonic() == 2.0
        assert clock.monotonic() == 1.0
    with inner:
        assert clock.monotonic() == 2.0


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="secs"):
        FakeClock().advance(-1)
