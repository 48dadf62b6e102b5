"""The time at which hooks stand."""

from concurrent.futures import ThreadPoolExecutor

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
