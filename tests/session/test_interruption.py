from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from runhooks.session.interruption import Interruption


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """Whatever a test sets, the handlers of before come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_a_signal_is_told_and_the_step_goes_on() -> None:
    told: list[int] = []
    finished = False
    with Interruption(told.append):
        send(signal.SIGINT)
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        finished = True
    assert told == [signal.SIGINT, signal.SIGTERM, signal.SIGTERM]
    assert finished


def test_the_second_ctrl_c_stops_now() -> None:
    told: list[int] = []
    with pytest.raises(KeyboardInterrupt), Interruption(told.append):
        send(signal.SIGINT)
        send(signal.SIGINT)
        pytest.fail("the second SIGINT came too late")
    assert told == [signal.SIGINT]


def test_ctrl_c_after_sigterm_is_the_first() -> None:
    told: list[int] = []
    with Interruption(told.append):
        send(signal.SIGTERM)
        send(signal.SIGINT)
    assert told == [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("error", [None, KeyError])
def test_the_handlers_of_before_come_back(error: type[Exception] | None) -> None:
    before = handlers()
    try:
        with Interruption(print):
            assert handlers() != before
            if error:
                raise error
    except KeyError:
        pass
    assert handlers() == before
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_each_block_counts_anew() -> None:
    told: list[int] = []
    for _ in range(2):
        with Interruption(told.append):
            send(signal.SIGINT)
    assert told == [signal.SIGINT] * 2


def test_a_users_handler_is_called_as_well() -> None:
    calls: list[tuple[str, int]] = []

    def users(number: int, frame: FrameType | None) -> None:
        calls.append(("user", number))

    signal.signal(signal.SIGTERM, users)
    with Interruption(lambda number: calls.append(("ours", number))):
        send(signal.SIGTERM)
    assert calls == [("ours", signal.SIGTERM), ("user", signal.SIGTERM)]
    assert signal.getsignal(signal.SIGTERM) is users


def test_inside_another_both_are_told() -> None:
    told: list[str] = []
    with (
        Interruption(lambda number: told.append("outer")),
        Interruption(lambda number: told.append("inner")),
    ):
        send(signal.SIGINT)
    assert told == ["inner", "outer"]


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption(lambda number: pytest.fail("told of an ignored signal")):
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_set_inside_is_not_thrown_away() -> None:
    def later(number: int, frame: FrameType | None) -> None: ...

    with Interruption(print):
        signal.signal(signal.SIGTERM, later)
    assert signal.getsignal(signal.SIGTERM) is later
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_it_does_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with Interruption(print):
            seen.extend(handlers())

    before = handlers()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == before


def test_they_may_be_left_in_any_order() -> None:
    before, told = handlers(), []
    one, two = (Interruption(lambda number, name=name: told.append(name)) for name in "ab")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    send(signal.SIGTERM)
    assert told == ["b"]
    two.__exit__(None, None, None)
    assert handlers() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_over_hands_on(number: int) -> None:
    calls: list[int] = []
    signal.signal(number, lambda number, frame: calls.append(number))
    with Interruption(lambda number: pytest.fail("told when it was over")):
        held = signal.getsignal(number)
        signal.signal(number, lambda number, frame: held(number, frame))
    send(number)
    send(number)
    assert calls == [number] * 2


def leave_in_another_thread(interruption: Interruption) -> None:
    thread = threading.Thread(target=interruption.__exit__, args=(None, None, None))
    thread.start()
    thread.join()


def test_left_in_another_thread_it_acts_as_the_handlers_of_before() -> None:
    before, told = handlers(), []
    leave_in_another_thread(Interruption(told.append).__enter__())
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    with Interruption(told.append):
        send(signal.SIGTERM)
    assert told == [signal.SIGTERM]
    assert handlers() == before


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM there")
def test_left_in_another_thread_sigterm_ends_the_process_again() -> None:
    script = """
import os, signal, threading
from runhooks.session.interruption import Interruption
interruption = Interruption(print).__enter__()
thread = threading.Thread(target=interruption.__exit__, args=(None, None, None))
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
"""
    result = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert result.returncode == -signal.SIGTERM
