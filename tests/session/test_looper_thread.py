from __future__ import annotations

import threading

import pytest

from runhooks.session.threads import Coordinator, LooperThread

TIMEOUT = 30  # seconds that a broken test waits before it fails


@pytest.fixture
def coord() -> Coordinator:
    return Coordinator()


def test_a_looper_calls_until_it_is_asked_to_stop(coord: Coordinator) -> None:
    calls: list[tuple[int, str]] = []

    def call(number: int, name: str) -> None:
        calls.append((number, name))
        if len(calls) == 3:
            coord.request_stop()

    looper = LooperThread.loop(coord, None, call, args=(1,), kwargs={"name": "x"})
    assert looper.daemon
    coord.join()
    assert calls == [(1, "x")] * 3


def test_a_looper_with_an_interval_calls_at_once_and_again(coord: Coordinator) -> None:
    called = threading.Semaphore(0)
    LooperThread.loop(coord, 0.001, called.release)
    assert all(called.acquire(timeout=TIMEOUT) for _ in range(3))
    coord.request_stop()
    coord.join()


def test_a_looper_is_woken_from_a_long_interval(coord: Coordinator) -> None:
    called = threading.Semaphore(0)
    looper = LooperThread.loop(coord, 10_000, called.release)
    assert called.acquire(timeout=TIMEOUT)
    coord.request_stop()
    coord.join(stop_grace_period_secs=TIMEOUT)
    assert not looper.is_alive()


def test_what_a_looper_raises_stops_everybody(coord: Coordinator) -> None:
    other = threading.Thread(target=coord.wait_for_stop, args=(TIMEOUT,), daemon=True)
    other.start()
    LooperThread.loop(coord, None, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        coord.join([other])


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


def test_arguments_of_a_looper(coord: Coordinator) -> None:
    with pytest.raises(ValueError, match="coord"):
        LooperThread("coord", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target"):
        LooperThread(coord, None, args=(1,))
