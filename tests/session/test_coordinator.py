"""Coordinators and looper threads: what ``tests/parity`` does not compare with TensorFlow's."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from runhooks.session.threads import Coordinator, LooperThread

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


@pytest.mark.parametrize("ex", ["an error", ValueError, (1, 2), (None, "text", None)])
def test_refuses_what_is_no_exception(coord: Coordinator, ex: object) -> None:
    with pytest.raises(TypeError, match="^ex "):
        coord.request_stop(ex)  # type: ignore[arg-type]
    assert not coord.should_stop()


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


# looper threads


def test_a_looper_is_woken_from_a_long_interval(coord: Coordinator) -> None:
    called = threading.Semaphore(0)
    looper = LooperThread.loop(coord, 10_000, called.release)
    assert called.acquire(timeout=TIMEOUT)
    coord.request_stop()
    coord.join(stop_grace_period_secs=TIMEOUT)
    assert not looper.is_alive()


def test_what_a_looper_raises_stops_everybody(coord: Coordinator) -> None:
    LooperThread.loop(coord, None, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        coord.join([worker(coord)])


def test_a_subclass_of_looper_is_told_of_start_and_stop(coord: Coordinator) -> None:
    calls: list[str] = []

    class Recorder(LooperThread):
        def start_loop(self) -> None:
            calls.append("start")

        def run_loop(self) -> None:
            calls.append("run")
            coord.request_stop()

        def stop_loop(self) -> None:
            calls.append("stop")

    Recorder(coord, None).start()
    coord.join()
    assert calls == ["start", "run", "stop"]


def test_a_looper_without_a_pause_asks_without_a_lock() -> None:
    class Asked(Coordinator):
        def should_stop(self) -> bool:
            me = threading.current_thread()
            other = threading.Thread(target=self.has_registered, args=(me,), daemon=True)
            other.start()
            other.join(2)
            waits.append(other.is_alive())
            return True

    waits: list[bool] = []
    LooperThread.loop(Asked(), None, lambda: None).join(TIMEOUT)
    assert waits == [False]


def test_arguments_of_a_looper(coord: Coordinator) -> None:
    with pytest.raises(ValueError, match="coord"):
        LooperThread("coord", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target"):
        LooperThread(coord, None, args=(1,))
