"""The queue in front of a file: what it does when it is full, and when things break."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from runhooks.errors import DeadlineExceededError
from runhooks.events.writing import background
from runhooks.events.writing.write_queue import MAX_WAITING_BYTES, MESSAGE, Batch, WriteQueue


class Memory:
    """A sink that keeps what is written; ``hold`` makes it wait, ``fail`` raises."""

    name = "the memory of the test"
    is_gone = False
    lost = 0

    def __init__(self) -> None:
        self.items: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def open(self) -> None:
        self.is_gone = False

    def write(self, batch: Batch) -> list[BaseException]:
        self.entered.set()
        assert self.go_on.wait(timeout=60)
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.items += zip(*batch, strict=True)
        return []

    def close(self) -> None:
        pass

    def forked(self) -> None:
        pass

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _, _ in self.items]


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.go_on.set()


@contextlib.contextmanager
def interrupted(
    owner: type, method: str, number: int, call: Callable[[], None], of: str = "line"
) -> Iterator[None]:
    """Call ``call`` once before the line, or opcode, ``number`` that ``method`` of ``owner`` runs.

    They are counted from 0 on.
    """
    code, passed, before = getattr(owner, method).__code__, 0, sys.gettrace()

    def trace(frame: FrameType, kind: str, argument: Any) -> Any:
        nonlocal passed
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = of == "opcode"
        if kind == of:
            passed += 1
            if passed == number + 1:
                sys.settrace(before)
                call()
                return None
        return trace

    sys._getframe().f_trace_opcodes = of == "opcode"  # Python 3.12 asks for it when tracing begins
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def held(memory: Memory, **arguments: Any) -> WriteQueue:
    """Return a queue of which the first item, 0, is being written, for as long as that is held."""
    memory.go_on.clear()
    queue = WriteQueue(memory, flush_secs=0.001, **arguments)
    queue.put("x", 0, 0, 0.0)
    assert memory.entered.wait(timeout=60)
    return queue


def test_one_of_two_that_flush_at_a_time_hears_of_an_error(memory: Memory) -> None:
    written = WriteQueue(memory)
    heard: list[Exception] = []

    def flush() -> None:
        try:
            written.flush()
        except (OSError, LookupError, ValueError) as error:
            heard.append(error)

    # In place of another thread: a flush between the lines that raise the error, each in its turn.
    for line in range(12):
        written.put("loss", 1.0, line, 0.0)
        memory.error = OSError(f"error {line}")
        with interrupted(WriteQueue, "_raise_error", line, flush):
            flush()
    assert [str(error) for error in heard] == [f"error {line}" for line in range(12)]


def fail(full: WriteQueue, memory: Memory, done: threading.Event) -> None:
    memory.error = OSError("no space")
    memory.go_on.set()
    full.settle()
    done.set()


def close(full: WriteQueue, memory: Memory, done: threading.Event) -> None:
    memory.go_on.set()
    full.close()
    done.set()


@pytest.mark.parametrize(("end", "error"), [(fail, OSError), (close, RuntimeError)])
def test_the_next_put_hears_of_what_another_thread_did_in_the_middle_of_one(
    end: Callable[[WriteQueue, Memory, threading.Event], None], error: type[Exception]
) -> None:
    # In place of the other thread: a call before each operation of the interpreter, in its turn.
    # A thread may come between any two of them, and on a free-threaded build one often does.
    for number in range(100):
        memory, ended = Memory(), threading.Event()
        memory.go_on.clear()
        full = WriteQueue(memory, max_queue=2, on_full="drop")
        full.put("x", 0, 0, 0.0)
        full.put("x", 1, 1, 0.0)
        background.schedule(full, hurry=True)
        assert memory.entered.wait(timeout=60)
        meanwhile = partial(end, full, memory, ended)
        with interrupted(WriteQueue, "_set_mark", number, meanwhile, of="opcode"):
            full.put("x", 2, 2, 0.0)
        if not ended.is_set():
            close(full, memory, ended)
            break
        with pytest.raises(error):
            full.put("x", 3, 3, 0.0)
        assert 3 not in memory.values
    assert number > 3


def test_what_is_put_comes_out_in_order(memory: Memory) -> None:
    queue = WriteQueue(memory)
    expected: list[tuple[Any, ...]] = []
    for step in range(40_000):  # more than a batch
        queue.put("x", step / 2, step, 1.5)
        expected.append(("x", step / 2, step, 1.5))
        if step % 1000 == 0:
            queue.put_message(step)
            expected.append((MESSAGE, step, False, 0.0))
    queue.close()
    assert memory.items == expected


def test_a_full_queue_raises_if_it_is_to(memory: Memory) -> None:
    full = held(memory, max_queue=3, on_full="raise")
    full.put("x", 1, 1, 0.0)
    full.put_message(2)
    for put in (lambda: full.put("x", 3, 3, 0.0), lambda: full.put_message(3)):
        with pytest.raises(queue.Full, match="the memory of the test"):
            put()
    memory.go_on.set()
    full.flush()
    full.put("x", 4, 4, 0.0)
    full.close()
    assert memory.values == [0, 1, 2, 4]
    assert full.dropped == 0


def test_a_full_queue_drops_and_counts_if_it_is_to(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "runhooks")
    full = held(memory, max_queue=3, on_full="drop")
    for value in range(1, 10):
        full.put("x", value, value, 0.0)
    memory.go_on.set()
    full.flush()
    full.put("x", 10, 10, 0.0)
    full.close()
    assert memory.values == [0, 1, 2, 10]
    assert full.dropped == 7
    (record,) = caplog.records
    assert "the memory of the test" in record.getMessage()


def test_large_messages_fill_the_queue_by_their_bytes(memory: Memory) -> None:
    full = held(memory, on_full="raise")
    third = MAX_WAITING_BYTES // 3
    for value in (1, 2, 3):
        full.put_message(value, nbytes=third)
    with pytest.raises(queue.Full):
        full.put_message(4, nbytes=third)
    full.put_message(5, nbytes=100)  # there is always room for a small one
    memory.go_on.set()
    full.flush()
    full.put_message(6, nbytes=2 * MAX_WAITING_BYTES)  # alone, even this
    full.flush()
    full.put_message(7, nbytes=third)
    full.close()
    assert memory.values == [0, 1, 2, 3, 5, 6, 7]


def test_a_full_queue_waits_by_default(memory: Memory) -> None:
    full = held(memory, max_queue=1)
    added = threading.Event()

    def add() -> None:
        full.put("x", 1, 1, 0.0)
        added.set()

    thread = threading.Thread(target=add)
    thread.start()
    assert not added.is_set()
    memory.go_on.set()
    thread.join(timeout=60)
    assert added.is_set()
    full.close()
    assert memory.values == [0, 1]


def test_a_batch_that_fails_is_one_error_and_the_next_is_written(memory: Memory) -> None:
    broken = WriteQueue(memory)
    memory.error = OSError("no space")
    for value in range(5):
        broken.put("x", value, value, 0.0)
    with pytest.raises(OSError, match="no space") as raised:
        broken.flush()
    (note,) = raised.value.__notes__
    assert note == "the memory of the test lost 5 items"
    broken.put("x", 5, 5, 0.0)
    broken.close()
    assert memory.values == [5]


def test_flush_may_have_enough(memory: Memory) -> None:
    slow = held(memory)
    with pytest.raises(DeadlineExceededError, match="0.01"):
        slow.flush(timeout=0.01)
    memory.go_on.set()
    slow.close()
    assert memory.values == [0]


def test_it_is_reopened_if_it_is_closed_or_gone(memory: Memory) -> None:
    reopened = WriteQueue(memory)
    assert not reopened.reopen()
    memory.is_gone = True
    assert reopened.reopen()
    reopened.close()
    with pytest.raises(RuntimeError, match="the memory of the test .*reopen"):
        reopened.put_message(1)
    assert reopened.reopen()
    reopened.put_message(2)
    reopened.close()
    assert memory.values == [2]


def end(thread: threading.Thread) -> None:
    """Raise SystemExit in ``thread`` at its next bytecode."""
    assert thread.ident is not None
    identity = ctypes.c_ulong(thread.ident)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(SystemExit)) == 1


def writing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "runhooks-events"]


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="how to end a thread there?")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("moment", ["asleep", "writing"])
def test_nobody_waits_for_a_thread_that_was_killed(memory: Memory, moment: str) -> None:
    survivor = WriteQueue(memory)
    survivor.put("x", 0, 0, 0.0)
    survivor.flush()
    before = writing_threads()
    if moment == "writing":
        memory.go_on.clear()
        memory.entered.clear()
        survivor.put("x", 1, 1, 0.0)
        background.schedule(survivor, hurry=True)
        assert memory.entered.wait(timeout=60)
    memory.entered.clear()
    for thread in before:
        end(thread)
    memory.go_on.set()
    survivor.put("x", 2, 2, 0.0)
    assert memory.entered.wait(timeout=60)  # nobody has to flush for it
    with contextlib.suppress(SystemExit):  # raised in the middle of a batch, and so told
        survivor.flush()
    survivor.put("x", 3, 3, 0.0)
    survivor.close()
    assert memory.values[-1] == 3
    assert sorted(set(memory.values)) in ([0, 2, 3], [0, 1, 2, 3], [0, 3])
    assert writing_threads() != []
    for thread in before:  # the next test is not to end one that is still ending
        thread.join(timeout=1)


def test_without_threads_the_caller_writes(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "is_alive", lambda thread: False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    alone = WriteQueue(memory)
    alone.put("x", 0, 0, 0.0)
    assert memory.values == [0]
    alone.close()
