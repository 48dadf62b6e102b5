"""A failure comes to all ranks, whatever becomes of the one that tells of it."""

import threading

import pytest

from runhooks.errors import PeerFailedError
from runhooks.ranks import LocalGroup


class Dies(LocalGroup):
    """A rank that is killed when it has told the store of a failure, and nobody else."""

    def store_set_once(self, key, value):
        found = super().store_set_once(key, value)
        if key.endswith("/failed"):
            raise SystemExit
        return found


def test_a_failure_whose_teller_has_died_is_told_by_the_next():
    memory = LocalGroup.together(1)[0]._memory
    first, dies, last = LocalGroup(0, 3, memory), Dies(1, 3, memory), LocalGroup(2, 3, memory)
    with pytest.raises(SystemExit):
        dies.fail("it broke")
    errors, waits = [], threading.Event()

    def wait():
        waits.set()
        with pytest.raises(PeerFailedError) as caught:
            first.barrier("never")
        errors.append(caught.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(60)
    last.fail("it broke, too")
    waiting.join(60)
    with pytest.raises(PeerFailedError):
        last.barrier("never")
    (error,) = errors
    assert (error.rank, error.cause) == (1, "it broke")


def test_a_failure_is_not_written_where_the_log_was_trimmed():
    """The ear of rank 1 hears two meetings while the rank tells of a failure."""

    class Slow(LocalGroup):
        def store_set_once(self, key, value):
            if key.endswith("/log/1"):
                meet(2)  # entries 1 and 2 are heard, and 1 is trimmed
            return super().store_set_once(key, value)

    memory = LocalGroup.together(1)[0]._memory
    groups = [LocalGroup(0, 2, memory), Slow(1, 2, memory)]

    def meet(times):
        for _ in range(times):
            threads = [threading.Thread(target=it.barrier, args=["b"]) for it in groups]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)

    groups[1].fail("it broke")
    with pytest.raises(PeerFailedError, match="it broke"):
        groups[0].barrier("b")
    with pytest.raises(PeerFailedError, match="it broke"):
        groups[1].barrier("b")
