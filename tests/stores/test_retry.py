"""A store that answers 503, late, or not at all; the proxy in front of it is real."""

import logging
import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from runhooks import clock, stores
from runhooks.stores import RetryPolicy, open_store
from runhooks.summary import FileWriter
from tests.s3_server import CREDENTIALS
from tests.stores.conftest import use_endpoint

SOON = RetryPolicy(secs=60, first_wait_secs=0.01, longest_wait_secs=0.1)
NEVER = RetryPolicy(secs=0)


@pytest.fixture
def store(bucket, proxy):
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


@pytest.mark.slow
def test_one_part_of_a_large_object_that_fails_is_sent_again_alone(bucket, proxy, monkeypatch):
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 5)
    store = open_store(f"{bucket}/run", SOON)
    content = np.arange(5 << 20, dtype=np.int64).view(np.uint8)
    proxy.fail("503", 1, "PUT", "partNumber=2")
    store.put("large", content)
    assert sum("partNumber=1&" in it[1] for it in proxy.requests) == 1
    into = np.empty_like(content)
    proxy.fail("503", 2, "GET")
    store.read_into("large", memoryview(into))
    np.testing.assert_array_equal(into, content)


def test_no_such_bucket_is_said_at_once(bucket, caplog):
    store = open_store("s3://no-such-bucket/run", SOON)
    with caplog.at_level(logging.DEBUG, "runhooks"):
        for ask in (lambda: store.put("k", b""), lambda: store.read("k"), store.objects):
            with pytest.raises(FileNotFoundError, match="bucket does not exist.*no-such-bucket"):
                ask()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [("403", PermissionError, "run/k"), ("501", OSError, "Not implemented")],
)
def test_what_no_second_try_changes_is_said_at_once(
    store, bucket, proxy, caplog, fault, error, message
):
    proxy.decide = lambda method, path: fault
    with caplog.at_level(logging.DEBUG, "runhooks"):
        with pytest.raises(error, match=message) as caught:
            store.put("k", b"content")
    assert caught.value.filename == f"{bucket}/run/k"
    assert caplog.messages == []


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


class Still:
    """A clock that goes on while the program sleeps, and not else."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    wall = monotonic

    def sleep(self, secs):
        self.now += secs


@pytest.mark.slow
def test_waits_grow_up_to_a_limit(bucket, proxy, monkeypatch):
    still, tried = Still(), []
    left = ["503"] * 5

    def decide(method, path):
        tried.append(still.now)
        return left.pop() if left else None

    proxy.decide = decide
    monkeypatch.setattr("time.sleep", still.sleep)
    with clock.use(still):
        open_store(f"{bucket}/run", RetryPolicy(60, 1, 4)).put("k", b"content")
    waits = np.diff(tried)
    assert all(low / 2 <= wait <= low for wait, low in zip(waits, [1, 2, 4, 4, 4], strict=True))


@pytest.mark.slow
def test_all_who_use_a_bucket_wait_for_it_together(bucket, proxy, monkeypatch):
    still = Still()
    monkeypatch.setattr("time.sleep", still.sleep)
    policy = RetryPolicy(60, 1, 4)
    one, other = open_store(f"{bucket}/run", policy), open_store(f"{bucket}/other", policy)

    def tries(store):
        before = len(proxy.requests)
        with pytest.raises(OSError, match="Reduce your request rate"):
            store.put("k", b"content")
        return len(proxy.requests) - before

    with clock.use(still):
        one.put("k", b"content")
        proxy.decide = lambda method, path: "503"
        assert tries(open_store(f"{bucket}/run", NEVER)) == 1
        assert tries(one) > 5
        still.now += 10
        assert tries(other) == tries(one) == 1
        proxy.decide = lambda method, path: None
        other.put("k", b"content")
        proxy.fail("lost request", 2)  # and has time again
        one.put("k", b"content")
        assert one.read("k") == b"content"


@pytest.mark.slow
def test_a_store_that_never_answered_gets_ten_seconds(bucket, proxy, monkeypatch):
    still = Still()
    monkeypatch.setattr("time.sleep", still.sleep)

    def secs_until_error(ask):
        begun = still.now
        with pytest.raises(OSError, match=bucket):
            ask()
        return still.now - begun

    with clock.use(still):
        proxy.decide = lambda method, path: "503"
        assert 3 < secs_until_error(lambda: FileWriter(f"{bucket}/run")) <= 10
        chosen = open_store(f"{bucket}/run", SOON)
        still.now += 1000
        assert secs_until_error(lambda: chosen.put("k", b"")) == 0  # all share their time
        proxy.decide = lambda method, path: None
        store = open_store(f"{bucket}/run")
        store.put("k", b"content")
        proxy.decide = lambda method, path: "503"
        assert 250 < secs_until_error(lambda: store.put("k", b"")) <= 300


class Fast:
    """A clock that goes 100 times as fast as others."""

    def monotonic(self):
        return 100 * time.monotonic()

    wall = monotonic


def test_a_store_that_never_said_anything_is_given_up(bucket, proxy):
    proxy.fail("hang", 1)
    with clock.use(Fast()), pytest.raises(TimeoutError, match="no answer for"):
        open_store(f"{bucket}/run").put("k", b"content")
    proxy.closed.set()


def test_a_store_that_says_nothing_is_mentioned(bucket, proxy, caplog):
    class Listener(logging.Handler):
        def emit(self, record):
            if "no answer for 10 s" in record.getMessage():
                proxy.closed.set()

    store = open_store(f"{bucket}/run", RetryPolicy(1e6, 0.01))
    store.put("k", b"content")
    proxy.fail("hang", 1)
    listener = Listener()
    logging.getLogger("runhooks").addHandler(listener)
    try:
        with clock.use(Fast()):
            assert store.read("k") == b"content"
    finally:
        logging.getLogger("runhooks").removeHandler(listener)
    assert f"{bucket}/run/k: no answer for 10 s; waiting for it" in caplog.messages


@pytest.mark.parametrize("fault", ["503", "403", "lost request", "nobody"])
def test_messages_tell_the_cause(bucket, proxy, monkeypatch, fault):
    causes = {
        "503": "Reduce your request rate",
        "403": "Access Denied",
        "lost request": "Connection was closed before we received a valid response",
        "nobody": "Could not connect to the endpoint URL",
    }
    proxy.decide = lambda method, path: fault
    proxy.closed.set()
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        if fault == "nobody":
            use_endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}", monkeypatch)
        with pytest.raises(OSError, match=causes[fault]) as caught:
            open_store(f"{bucket}/run", NEVER).put("k", b"content")
    assert caught.value.filename == f"{bucket}/run/k"
    assert isinstance(caught.value, PermissionError) == (fault == "403")


PROGRAM = """
import sys
from runhooks.stores import open_store
for _ in range(2):
    try:
        open_store(sys.argv[1]).put("k", b"content")
    except OSError as error:
        print(type(error).__name__, error.filename, error.strerror)
"""


@pytest.mark.parametrize("profile", [None, "of-nobody"])
def test_without_credentials_it_says_what_to_do_each_time(bucket, monkeypatch, profile):
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    first, second = told_by_program(f"{bucket}/run")
    assert first.startswith(
        f"PermissionError {bucket}/run/k no credentials for s3:// were found: set AWS_ACCESS_KEY_ID"
    )
    assert second == first


@pytest.mark.slow
def test_credentials_that_are_given_later(bucket, monkeypatch):
    given = {name: os.environ[name] for name in CREDENTIALS if "KEY" in name}
    for name in given:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    program = f"""
import os
import runhooks as rh
for _ in range(2):
    try:
        print(rh.latest_checkpoint("{bucket}/run"))
    except PermissionError:
        os.environ.update({given!r})
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert told.stdout == b"None\n", told


def told_by_program(*arguments):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines()
