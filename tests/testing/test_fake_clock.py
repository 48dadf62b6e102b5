import threading
import time

import pytest

from runhooks import clock
from runhooks.testing import FakeClock


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
