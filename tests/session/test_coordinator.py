from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from runhooks.errors import OutOfRangeError
from runhooks.session.threads import Coordinator

TIMEOUT = 30  # seconds that a broken test waits before it fails


@pytest.fixture
def coord() -> Coordinator:
    return Coordinator()


@pytest.fixture
def blocked() -> Iterator[threading.Thread]:
    """A thread that does not heed the coordinator."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="deaf", daemon=True)
    thread.start()
    yield thread
    release.set()
    thread.join()


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def worker(coord: Coordinator) -> threading.Thread:
    return start(lambda: coord.wait_for_stop(TIMEOUT))


def test_nobody_has_asked_at_first(coord: Coordinator) -> None:
    assert not coord.should_stop()
    assert not coord.joined
    assert not coord.wait_for_stop(timeout=0)
    coord.raise_requested_exception()


def test_a_request_wakes_all_who_wait(coord: Coordinator) -> None:
    threads = [worker(coord) for _ in range(3)]
    coord.request_stop()
    assert coord.should_stop()
    assert coord.wait_for_stop()
    coord.join(threads)
    assert coord.joined
    assert not any(thread.is_alive() for thread in threads)


def test_clear_stop_forgets(coord: Coordinator) -> None:
    coord.request_stop(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        coord.join()
    coord.clear_stop()
    assert not coord.should_stop()
    assert not coord.joined
    coord.raise_requested_exception()


def test_join_waits_for_threads_that_end_by_themselves(coord: Coordinator) -> None:
    done = []
    go = threading.Event()
    threads = [start(lambda: done.append(go.wait(TIMEOUT))) for _ in range(2)]
    joiner = start(lambda: coord.join(threads))
    assert joiner.is_alive()
    go.set()
    joiner.join(TIMEOUT)
    assert not joiner.is_alive()
    assert done == [True, True]
    assert not coord.should_stop()


def test_join_waits_for_registered_threads_too(coord: Coordinator) -> None:
    registered = worker(coord)
    coord.register_thread(registered)
    coord.request_stop()
    coord.join()
    assert not registered.is_alive()


def test_join_skips_threads_that_were_not_started(coord: Coordinator) -> None:
    coord.register_thread(threading.Thread(target=print))
    coord.join([threading.Thread(target=print)])
    assert coord.joined


@pytest.mark.parametrize("as_tuple", [False, True])
def test_join_raises_what_a_thread_failed_of(coord: Coordinator, as_tuple: bool) -> None:
    error = ValueError("bad batch")

    def fail() -> None:
        try:
            raise error
        except ValueError as raised:
            coord.request_stop(sys.exc_info() if as_tuple else raised)  # type: ignore[arg-type]

    threads = [start(fail), worker(coord)]
    with pytest.raises(ValueError, match="bad batch") as caught:
        coord.join(threads)
    assert caught.value is error
    assert "fail" in [entry.name for entry in caught.traceback]
    with pytest.raises(ValueError, match="bad batch"):
        coord.raise_requested_exception()


def test_the_first_error_counts(coord: Coordinator) -> None:
    coord.request_stop(ValueError("first"))
    coord.request_stop(TypeError("second"))
    with pytest.raises(ValueError, match="first"):
        coord.join()


def test_an_error_after_a_plain_request_is_not_a_failure(coord: Coordinator) -> None:
    coord.request_stop()
    coord.request_stop(ValueError("while it was shutting down"))
    coord.join()


def test_the_end_of_an_input_is_a_clean_stop(coord: Coordinator) -> None:
    with coord.stop_on_exception():
        raise OutOfRangeError("end")
    assert coord.should_stop()
    coord.join()


def test_other_clean_stops_may_be_chosen() -> None:
    coord = Coordinator(clean_stop_exception_types=[StopIteration])
    coord.request_stop(StopIteration())
    coord.join()
    coord = Coordinator(clean_stop_exception_types=[StopIteration])
    coord.request_stop(OutOfRangeError("end"))
    with pytest.raises(OutOfRangeError):
        coord.join()


def test_stop_on_exception_swallows_and_reports(coord: Coordinator) -> None:
    with coord.stop_on_exception():
        raise ZeroDivisionError("oops")
    assert coord.should_stop()
    with pytest.raises(ZeroDivisionError, match="oops"):
        coord.join()


def test_stop_on_exception_lets_a_good_block_pass(coord: Coordinator) -> None:
    with coord.stop_on_exception():
        pass
    assert not coord.should_stop()


def test_an_error_after_join_is_raised_at_once(coord: Coordinator) -> None:
    coord.join()
    with pytest.raises(ValueError, match="too late"), coord.stop_on_exception():
        raise ValueError("too late")
    coord.request_stop(OutOfRangeError("clean"))
    coord.request_stop()


@pytest.mark.parametrize("ex", ["an error", ValueError, (1, 2), (None, "text", None)])
def test_refuses_what_is_no_exception(coord: Coordinator, ex: object) -> None:
    with pytest.raises(TypeError, match="^ex "):
        coord.request_stop(ex)  # type: ignore[arg-type]
    assert not coord.should_stop()


def test_a_thread_that_does_not_stop_is_named(
    coord: Coordinator, blocked: threading.Thread
) -> None:
    coord.request_stop()
    with pytest.raises(RuntimeError, match="deaf"):
        coord.join([blocked], stop_grace_period_secs=0.01)
    assert coord.joined


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelno == logging.WARNING]


def test_a_thread_that_does_not_stop_may_be_ignored(
    coord: Coordinator, blocked: threading.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    coord.request_stop()
    coord.join([blocked], stop_grace_period_secs=0, ignore_live_threads=True)
    (warning,) = warnings(caplog)
    assert "deaf" in warning


def test_a_thread_that_joins_itself_counts_as_running(coord: Coordinator) -> None:
    raised: list[BaseException] = []

    def join() -> None:
        coord.request_stop()
        try:
            coord.join(stop_grace_period_secs=TIMEOUT)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=join, name="joiner", daemon=True)
    coord.register_thread(thread)
    thread.start()
    thread.join()
    assert "still running" in str(raised)
    assert "joiner" in str(raised)
    assert coord.joined


def test_a_failure_counts_more_than_a_thread_that_does_not_stop(
    coord: Coordinator, blocked: threading.Thread
) -> None:
    coord.request_stop(ValueError("the cause"))
    with pytest.raises(ValueError, match="the cause"):
        coord.join([blocked], stop_grace_period_secs=0)


def test_a_thread_that_does_not_stop_is_named_beside_a_failure(
    coord: Coordinator, blocked: threading.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    coord.request_stop(ValueError("the cause"))
    with pytest.raises(ValueError, match="the cause"):
        coord.join([blocked], stop_grace_period_secs=0)
    (warning,) = warnings(caplog)
    assert "deaf" in warning


@pytest.mark.parametrize("wait", ["join", "wait_for_stop"])
def test_a_signal_handler_may_ask_while_the_main_thread_waits(
    coord: Coordinator, wait: str
) -> None:
    threads = [worker(coord)]
    before = signal.signal(signal.SIGUSR1, lambda number, frame: coord.request_stop())
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    timer.start()
    try:
        coord.join(threads) if wait == "join" else coord.wait_for_stop(TIMEOUT)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert coord.should_stop()
