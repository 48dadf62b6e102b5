"""What a rank asks of the store is answered within a limit, whoever asks, or the store is lost."""

import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from runhooks.errors import UnavailableError
from runhooks.ranks import Group, LocalGroup
from runhooks.ranks import store as rank_store


class StoreOfProcess(LocalGroup):
    """A rank whose requests have a limit, as those of a real store have."""

    request = Group.request


class SlowStore(StoreOfProcess):
    """A store that answers a request when it is let."""

    def __init__(self):
        super().__init__(0, 1)
        self.asked, self.let = threading.Semaphore(0), threading.Semaphore(0)

    def store_get(self, key):
        self.asked.release()
        assert self.let.acquire(timeout=60)
        return super().store_get(key)


class Looked(Future):
    """An answer that the main thread does not wait for: each look calls ``at_look``."""

    looks = 0

    def exception(self, timeout=None):
        if threading.current_thread() is threading.main_thread() and not self.done():
            self.looks += 1
            self.at_look()
            if not self.done():
                raise TimeoutError
        return super().exception()

    def at_look(self):
        """Nothing happens meanwhile."""


def test_a_store_that_answers_the_requests_before_is_not_lost(monkeypatch):
    store = SlowStore()
    before = threading.Thread(target=store.get, args=["key"])
    before.start()
    assert store.asked.acquire(timeout=60)

    def at_look(answer):
        if answer.looks == 9:  # of ten in the limit
            store.let.release()
            assert store.asked.acquire(timeout=60)
        elif answer.looks == 18:
            store.let.release()
            Future.exception(answer, timeout=60)

    monkeypatch.setattr(Looked, "at_look", at_look)
    monkeypatch.setattr(rank_store, "Future", Looked)
    assert store.get("key") is None
    before.join()


def test_a_store_that_answers_nobody_is_lost(monkeypatch):
    monkeypatch.setattr(rank_store, "Future", Looked)
    store = SlowStore()
    with pytest.raises(UnavailableError, match="has not answered for 100 seconds"):
        store.get("key")
    with pytest.raises(UnavailableError, match="has not answered"):
        store.set("key", "value")
    store.let.release()


def test_a_thread_that_cannot_be_started_is_named_and_tried_again(monkeypatch):
    store, start = StoreOfProcess(0, 1), threading.Thread.start

    def cannot(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", cannot)
    with pytest.raises(UnavailableError, match="no thread .* can't start new thread"):
        store.get("key")
    monkeypatch.setattr(threading.Thread, "start", start)
    assert store.get("key") is None


def test_a_request_within_a_request_is_answered():
    class Drops(StoreOfProcess):
        """A session that is dropped tells of it, in whatever thread the collector runs."""

        def store_get(self, key):
            self.set("dropped", "yes")
            return super().store_get(key)

    assert Drops(0, 1).get("dropped") == "yes"


ENDS = """
import atexit
from tests.ranks.test_requests import StoreOfProcess

store = StoreOfProcess(0, 1)
atexit.register(lambda: print("at exit:", store.get("key")))
store.set("key", "value")
"""


def test_a_request_at_the_exit_is_answered():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "at exit: value\n", done.stderr


FORKS = """
import os
from concurrent.futures import ThreadPoolExecutor
import runhooks as rh
from runhooks.ranks import LocalGroup, entered

def train(group):
    child = None
    try:
        with entered(group), rh.Graph().as_default():
            op = rh.train.get_or_create_global_step().assign_add(1)
            with rh.MonitoredSession() as session:
                session.run(op)
                if group.rank == 1:
                    child = os.fork()
    except BaseException as error:
        if child != 0:
            raise
        os._exit(7 if "forked by rank 1" in str(error) else 1)
    return child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(train, LocalGroup.together(2))))
"""


def test_a_forked_child_has_no_part_in_the_training():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[None, 7]\n", done.stderr
