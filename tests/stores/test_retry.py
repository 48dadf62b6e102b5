"""A store that answers 503, late, or not at all; the proxy in front of it is real."""

import logging
import socket

import numpy as np
import pytest

from runhooks import stores
from runhooks.stores import RetryPolicy, open_store
from tests.stores.conftest import use_endpoint

SOON = RetryPolicy(secs=60, first_wait_secs=0.01, longest_wait_secs=0.1)
NEVER = RetryPolicy(secs=0)


@pytest.fixture
def store(bucket, s3_library, proxy):
    return open_store(f"{bucket}/run", SOON)


@pytest.mark.parametrize("fault", ["503", "lost request", "lost answer"])
def test_what_passes_is_tried_again(store, proxy, fault):
    def disturbed():
        proxy.fail(fault, 1)
        return store

    disturbed().put("k", b"content")
    assert disturbed().read("k") == b"content"
    assert [it.key for it in disturbed().objects()] == ["k"]
    disturbed().create("new", b"mine")
    disturbed().delete(["k", "new"])
    assert sum(it[2] == fault for it in proxy.requests) == 5
    assert disturbed().objects() == []


def test_an_object_created_although_its_answer_was_lost_is_ones_own(store, proxy):
    proxy.fail("lost answer", 1, "PUT")
    store.create("commit", b"attempt 1")
    with pytest.raises(FileExistsError):
        store.create("commit", b"attempt 2")
    assert ("PUT", "/" + store.url_of("commit")[len("s3://") :], "lost answer") in proxy.requests


def test_one_part_of_a_large_object_that_fails_is_sent_again_alone(bucket, proxy):
    store = open_store(f"{bucket}/run", SOON)
    content = np.arange(2 << 20, dtype=np.int64).view(np.uint8)
    proxy.fail("503", 1, "PUT", "partNumber=2")
    store.put("large", content)
    assert sum("partNumber=1&" in it[1] for it in proxy.requests) == 1
    into = np.empty_like(content)
    proxy.fail("503", 2, "GET")
    store.read_into("large", memoryview(into))
    np.testing.assert_array_equal(into, content)


@pytest.mark.parametrize("fault", ["503", "lost request"])
def test_what_does_not_pass_in_time_is_an_error_of_a_disk(bucket, proxy, fault):
    store = open_store(f"{bucket}/run", RetryPolicy(0.05, 0.01))
    proxy.decide = lambda method, path: fault
    with pytest.raises(OSError, match="run/k") as caught:
        store.read("k")
    assert caught.value.filename == f"{bucket}/run/k"
    assert not isinstance(caught.value, FileNotFoundError | PermissionError | FileExistsError)


def test_no_such_bucket_is_said_at_once(bucket, s3_library, caplog):
    store = open_store("s3://no-such-bucket/run", SOON)
    with caplog.at_level(logging.DEBUG, "runhooks"):
        for ask in (lambda: store.put("k", b""), lambda: store.read("k"), store.objects):
            with pytest.raises(FileNotFoundError, match="bucket does not exist.*no-such-bucket"):
                ask()
    assert caplog.messages == []


def test_no_access_is_said_at_once(bucket, s3_library, proxy, caplog):
    proxy.decide = lambda method, path: "403"
    store = open_store(f"{bucket}/run", SOON)
    with caplog.at_level(logging.DEBUG, "runhooks"), pytest.raises(PermissionError) as caught:
        store.put("k", b"")
    assert caught.value.filename == f"{bucket}/run/k"
    assert caplog.messages == []


def test_nobody_at_that_address(bucket, monkeypatch):
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        use_endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}", monkeypatch)
        store = open_store(f"{bucket}/run", NEVER)
        with pytest.raises(OSError, match="run/k") as caught:
            store.read("k")
    assert caught.value.filename == f"{bucket}/run/k"


def test_the_default_policy():
    before = stores.default_policy()
    try:
        stores.set_retry_policy(SOON)
        assert stores.default_policy() is SOON
    finally:
        stores.set_retry_policy(before)
    with pytest.raises(ValueError, match="secs must not be negative, got -1"):
        RetryPolicy(-1)
    with pytest.raises(TypeError, match="policy must be a RetryPolicy"):
        stores.set_retry_policy(3)


def test_waits_grow_and_end(monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    tries = iter([TimeoutError("late"), ConnectionResetError("reset"), OSError(5, "busy"), "done"])

    def request():
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert RetryPolicy(60, 1, 3).call(request, "s3://b") == "done"
    assert all(low / 2 <= wait <= low for wait, low in zip(waits, [1, 2, 3], strict=True))
