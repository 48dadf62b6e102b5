"""Event files in a store that asks for patience, denies, loses answers, or says nothing."""

import threading

import pytest

import runhooks as rh
from runhooks import events
from runhooks.errors import DeadlineExceededError

LIMIT_SECS = 120


@pytest.fixture
def run(bucket, proxy):
    """The URL of a run, reached through the proxy."""
    return f"{bucket}/run"


@pytest.fixture
def asked(proxy):
    """Set once somebody has asked to write; nobody is answered until ``let_go`` is called."""

    class Silence:
        def __init__(self):
            self.arrived = threading.Event()
            proxy.decide = self._decide

        def _decide(self, method, path):
            if method != "PUT":
                return None
            self.arrived.set()
            return "hang"

        def let_go(self):
            proxy.decide = lambda method, path: None
            proxy.closed.set()

    return Silence


def add(writer, begin, end):
    for step in range(begin, end):
        writer.scalar("loss", step / 2, step)


def steps(url):
    run = events.read(url).only
    assert run.damages == []
    return run.scalars["loss"].steps.tolist()


def test_what_passes_is_not_noticed(run, proxy):
    writer = rh.summary.FileWriter(run)
    for number, fault in enumerate(["503", "lost request", "lost answer"]):
        add(writer, 10 * number, 10 * number + 10)
        proxy.fail(fault, 2, "PUT")
        writer.flush()
        assert steps(run) == list(range(10 * number + 10))
        assert [fault for *_, fault in proxy.requests].count(fault) == 2
    writer.close()


def test_the_loop_goes_on_while_the_store_is_silent(run, proxy, asked):
    writer = rh.summary.FileWriter(run, flush_secs=0.001)
    beside = rh.summary.MemoryWriter()
    silence = asked()
    add(writer, 0, 10)
    assert silence.arrived.wait(LIMIT_SECS)
    add(writer, 10, 5000)
    add(beside, 0, 10)
    beside.flush()  # other writers do not wait for it
    with pytest.raises(DeadlineExceededError):
        events.flush_all(timeout=0.1)
    silence.let_go()
    writer.flush()
    assert steps(run) == list(range(5000))
    writer.close()


def test_an_error_is_raised_by_the_next_call_and_nothing_is_lost(run, proxy):
    writer = rh.summary.FileWriter(run, flush_secs=0.001)
    before = len(proxy.requests)
    proxy.decide = lambda method, path: "403"
    added = 0
    with pytest.raises(PermissionError) as caught:
        while True:
            add(writer, added, added + 1)
            added += 1
            threading.Event().wait(0.01)  # a loop that fills megabytes sends them in many requests
    assert caught.value.filename.startswith(f"{run}/events.out.tfevents.")
    assert "flush() tries again" in str(caught.value.__notes__)
    with pytest.raises(PermissionError):
        writer.flush()
    assert (
        len(proxy.requests) - before < 20
    )  # it does not try for ever, as nobody has asked for that
    proxy.decide = lambda method, path: None
    writer.flush()
    assert steps(run) == list(range(added))
    add(writer, added, added + 5)
    writer.close()
    assert steps(run) == list(range(added + 5))


def test_what_is_lost_in_the_end_is_counted(run, proxy):
    writer = rh.summary.FileWriter(run)
    add(writer, 0, 3)
    writer.flush()
    add(writer, 3, 8)
    proxy.decide = lambda method, path: "403" if method == "PUT" else None
    with pytest.raises(PermissionError) as caught:
        writer.close()
    assert f"the event writer of '{run}' lost 5 items" in str(caught.value)
    assert steps(run) == [0, 1, 2]


def test_a_place_that_cannot_be_written_to(run, proxy):
    proxy.decide = lambda method, path: "403" if method == "PUT" else None
    with pytest.raises(PermissionError) as caught:
        rh.summary.FileWriter(run)
    assert f"logdir must be a place that can be written to, got '{run}'" in caught.value.__notes__
    with pytest.raises(FileNotFoundError, match="s3://no-such-bucket"):
        rh.summary.FileWriter("s3://no-such-bucket/run")


def test_reading_waits_for_a_store_that_asks_for_patience(run, proxy):
    with rh.summary.FileWriter(run) as writer:
        add(writer, 0, 10)
    for fault in ("503", "lost answer"):
        proxy.fail(fault, 3, "GET")
        assert steps(run) == list(range(10))


def test_an_object_that_cannot_be_read_is_a_damage(run, proxy):
    for _ in range(2):
        with rh.summary.FileWriter(run) as writer:
            add(writer, 0, 3)
    first, _ = events.read(run).only.files
    proxy.decide = lambda method, path: "403" if first.name in path else None
    found = events.read(run).only
    assert found.scalars["loss"].steps.tolist() == [0, 1, 2]
    (damage,) = found.damages
    assert damage.path == first
    proxy.decide = lambda method, path: None
    assert found.update() == 3
    assert found.damages == []
