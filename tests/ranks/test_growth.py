"""What R ranks agree on costs O(R) requests to a store, which may have been used before."""

import logging
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import FileStore

from bench.ranks_scale import Ranks, hosted
from runhooks.engines.torch.group import TorchGroup, make_room


def requests(*phases, size):
    """Return how many requests ``size`` ranks have made that did this between start and end."""
    store = hosted()
    ranks = Ranks(store.port, range(size), size)
    for phase in ("begin", "start", *phases, "leave"):
        ranks.make(phase)
    return ranks.requests


def of_a_rank(*phases):
    """Return how many requests each rank adds, which is as many for each.

    A few more, or fewer, go by who leaves first: rank 0 wakes its own ear if that still waits.
    """
    few, some, many = [requests(*phases, size=size) for size in (2, 11, 20)]
    assert round((many - some) / 9) == round((some - few) / 9)
    return round((many - few) / 18)


@pytest.mark.slow
def test_each_rank_adds_the_same_few_requests_to_what_all_do():
    alone = of_a_rank()
    assert alone <= 30  # to find the others, to compare programs, and to leave
    assert of_a_rank("open") - alone == 5  # it comes, and hears that all have
    assert of_a_rank("stop") - alone == 7  # it hears twice, and tells once
    assert of_a_rank("save") - alone == 15


def test_ranks_that_all_stop_are_asked_once():
    size = 8
    one, everyone = requests("stop", size=size), requests("stop all", size=size)
    assert one <= everyone + 3
    assert everyone <= one + 3 * (size - 2)  # each that has not heard of it has told rank 0


class Said:
    """A connection that tells when a rank has said its word at a door."""

    def __init__(self, store, said):
        self._store, self._said = store, said

    def clone(self):
        return Said(self._store.clone(), self._said)

    def __getattr__(self, name):
        return getattr(self._store, name)

    def set(self, key, value):
        self._store.set(key, value)
        if "/hello/" in key:
            self._said.release()


@pytest.mark.parametrize("is_late", [True, False], ids=["rank 0 is late", "rank 0 is early"])
def test_ranks_that_start_again_on_a_used_store_find_each_other(is_late):
    store, size, said = hosted(), 3, threading.Semaphore(0)
    for life in ("first", "second", "third"):
        groups = [TorchGroup(Said(store.clone(), said), rank, size) for rank in range(size)]
        turns = {group.rank: threading.Event() for group in groups}

        def agree(group, life=life, turns=turns):
            assert turns[group.rank].wait(60)
            return group.agree("life", f"{life} {group.rank}", ", ".join)

        with ThreadPoolExecutor(size) as threads:
            found = threads.map(agree, groups)
            first, then = ((1, 2), (0,)) if is_late and life != "first" else ((0,), (1, 2))
            for rank in first:
                turns[rank].set()
            if 1 in first:
                assert all(
                    said.acquire(timeout=60) for _ in first
                )  # at the door of the life before
            for rank in then:
                turns[rank].set()
            assert set(found) == {f"{life} 0, {life} 1, {life} 2"}
        while said.acquire(blocking=False):
            pass


def test_ranks_meet_in_a_store_without_queues(tmp_path):
    stores = [FileStore(str(tmp_path / "store"), 2) for _ in range(2)]
    groups = [TorchGroup(store, rank, 2) for rank, store in enumerate(stores)]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            found = threads.map(lambda it: it.agree("name", str(it.rank), "".join), groups)
            assert list(found) == ["01", "01"]


@pytest.mark.parametrize(
    ("limits", "is_elsewhere", "raised", "words"),
    [
        ((100_000, 100_000), False, None, None),
        ((1024, 100_000), False, 3256, None),
        ((1024, 2048), False, 2048, "this process, which may host"),
        ((1024, 100_000), True, None, "the launcher, which hosts"),
    ],
)
def test_the_host_of_the_store_makes_room_or_says_what_is_missing(
    monkeypatch, caplog, limits, is_elsewhere, raised, words
):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: set_to.append(found[0]))
    with caplog.at_level(logging.WARNING):
        make_room(3000, is_elsewhere)
    assert set_to == ([] if raised is None else [raised])
    if words is None:
        assert not caplog.records
    else:
        assert words in caplog.text
        assert "ulimit -n 3256" in caplog.text
