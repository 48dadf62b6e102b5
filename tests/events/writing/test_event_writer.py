import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from runhooks.events import Event, EventWriter, flush_all, read_records
from runhooks.events.writing import background
from tests.event_files import events_in


class Lazy:
    """A message that notes that it is encoded, and in which thread; it may fail there."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.encoded = threading.Event()

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        self.thread = threading.current_thread()
        self.encoded.set()
        if self.error is not None:
            raise self.error
        return b""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[EventWriter]:
    writer = EventWriter(tmp_path)
    yield writer
    writer.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def steps(path: Path) -> list[int]:
    first, *rest = events_in(path)
    assert first.file_version == "brain.Event:2"
    return [event.step for event in rest]


def scalars(path: Path) -> list[tuple[int, str, float]]:
    with path.open("rb") as file:
        events = [event_pb2.Event.FromString(payload) for payload in read_records(file, str(path))]
    return [
        (event.step, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
    ]


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_flush_is_a_barrier(tmp_path: Path, writer: EventWriter) -> None:
    (path,) = files(tmp_path)
    for step in range(1, 2000):
        writer.add(Event(0.0, step))
        if step % 333 == 0:
            writer.flush()
            assert steps(path) == list(range(1, step + 1))


def test_flush_is_a_barrier_for_each_of_many_threads(tmp_path: Path, writer: EventWriter) -> None:
    (path,) = files(tmp_path)
    missing: list[int] = []

    def add_and_look(first: int) -> None:
        for step in range(first, first + 40):
            writer.add(Event(0.0, step))
            writer.flush()
            if step not in steps(path):
                missing.append(step)

    threads = [threading.Thread(target=add_and_look, args=(first,)) for first in (1, 101, 201)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing == []
    assert len(steps(path)) == 120


def test_events_are_written_without_a_flush(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path, flush_secs=0.001)
    message = Lazy()
    writer.add(Event(0.0, 1, summary=message))
    assert message.encoded.wait(timeout=30)
    writer.close()
    assert steps(files(tmp_path)[0]) == [1]


def test_messages_are_encoded_in_the_one_background_thread(tmp_path: Path) -> None:
    messages = [Lazy() for _ in range(6)]
    writers = [EventWriter(tmp_path / str(index)) for index in range(3)]
    for index, message in enumerate(messages):
        writers[index % 3].add(Event(0.0, 1, summary=message))
    for writer in writers:
        writer.close()
    (thread,) = {message.thread for message in messages}
    assert thread is not None
    assert thread.name == "runhooks-events"
    assert thread.daemon


def test_an_add_waits_when_the_queue_is_full(tmp_path: Path) -> None:
    messages = [Lazy() for _ in range(100)]
    writer = EventWriter(tmp_path, max_queue=3)
    for step, message in enumerate(messages):
        writer.add(Event(0.0, step, summary=message))
        encoded = sum(message.encoded.is_set() for message in messages)
        assert step + 1 - encoded <= 3
    writer.close()
    assert steps(files(tmp_path)[0]) == list(range(100))


@pytest.mark.parametrize("call", ["add", "flush", "close"])
def test_a_failed_encoding_reaches_the_next_call(tmp_path: Path, call: str) -> None:
    writer = EventWriter(tmp_path, max_queue=3, flush_secs=0.001)
    error, after = SystemExit("poisoned"), Lazy()
    writer.add(Event(0.0, 1))
    with pytest.raises(SystemExit, match="poisoned") as raised:
        writer.add(Event(0.0, 2, summary=Lazy(error)))
        writer.add(Event(0.0, 3, summary=after))
        assert after.encoded.wait(timeout=30)
        if call != "add":
            getattr(writer, call)()
        for _ in range(5):  # by then the queue is full, and an add waits for the thread
            writer.add(Event(0.0, 3))
    assert raised.value is error
    event, lost = raised.value.__notes__
    assert "step 2" in event
    assert repr(str(tmp_path)) in event
    assert lost.endswith("lost 1 item")
    writer.close()  # once is enough
    assert set(steps(files(tmp_path)[0])) in ({1, 3}, {1})


def test_scalars_and_events_are_in_the_file_in_the_order_in_which_they_were_added(
    tmp_path: Path, writer: EventWriter
) -> None:
    expected = []
    for step in range(1, 3000):
        writer.scalar("loss", step / 2, step)
        expected.append((step, "loss", step / 2))
        if step % 100 == 0:
            writer.scalars(step, {"rate": 0.5, "": 2})
            writer.add(event_pb2.Event(step=step, summary={"value": [{"tag": "theirs"}]}))
            expected += [(step, "rate", 0.5), (step, "", 2), (step, "theirs", 0)]
    writer.flush()
    assert scalars(files(tmp_path)[0]) == expected


def test_a_scalar_that_cannot_be_read_costs_no_other(tmp_path: Path, writer: EventWriter) -> None:
    for step in range(1, 101):
        writer.scalar("loss", "poison" if step == 50 else step, step)
    writer.scalars(101, {"rate": 1.0, "loss": None})
    writer.scalar("loss", 102, 102)
    with pytest.raises(TypeError, match="'poison'") as raised:
        writer.flush()
    scalar, event, *_ = raised.value.__notes__
    assert "'loss'" in scalar
    assert "step 50" in event
    assert repr(str(tmp_path)) in event
    found = [step for step, _, _ in scalars(files(tmp_path)[0])]
    assert found == [*range(1, 50), *range(51, 101), 101, 102]


@pytest.mark.parametrize("tag", [7, ["loss"], None], ids=repr)
def test_a_tag_that_is_no_text_is_told_at_the_next_call(
    tmp_path: Path, writer: EventWriter, tag: object
) -> None:
    for step in range(1, 101):
        writer.scalar("loss", step, step)
    writer.scalar(tag, 0.5, 101)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tag"):
        writer.flush()
    assert len(scalars(files(tmp_path)[0])) == 100


def test_a_full_queue_may_raise_or_drop(tmp_path: Path) -> None:
    class Held(Lazy):
        go_on = threading.Event()

        def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
            super().SerializeToString()
            assert self.go_on.wait(timeout=60)
            return b""

    held = Held()
    writer = EventWriter(tmp_path, max_queue=2, flush_secs=0.001, on_full="drop")
    writer.add(Event(0.0, 1, summary=held))
    assert held.encoded.wait(timeout=60)
    for step in (2, 3, 4):
        writer.scalar("loss", 0.5, step)
    assert writer.dropped == 2
    held.go_on.set()
    writer.close()
    assert steps(files(tmp_path)[0]) == [1, 2]


def test_it_is_pickled_as_its_arguments(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path, max_queue=7, filename_suffix=".mine", on_full="raise")
    writer.scalar("loss", 0.5, 1)
    copy = pickle.loads(pickle.dumps(writer))
    assert len(files(tmp_path)) == 1  # it makes a file when it has something to write
    copy.scalar("loss", 0.5, 2)
    copy.close()
    writer.close()
    assert [steps(path) for path in files(tmp_path)] == [[1], [2]]
    assert all(path.suffix == ".mine" for path in files(tmp_path))
    again = pickle.loads(pickle.dumps(copy))
    again.close()
    assert not pickle.loads(pickle.dumps(again)).closed


def test_the_first_of_several_errors_tells_of_the_rest(writer: EventWriter) -> None:
    for reason in ("first", "second", "third"):
        writer.add(Event(0.0, summary=Lazy(ValueError(reason))))
    with pytest.raises(ValueError, match="first") as raised:
        writer.flush()
    assert raised.value.__notes__[-1] == ("2 more errors followed; the last is ValueError('third')")


def test_a_writer_goes_on_after_an_error(tmp_path: Path, writer: EventWriter) -> None:
    writer.add(Event(0.0, 1, summary=Lazy(ValueError("poisoned"))))
    with pytest.raises(ValueError, match="poisoned"):
        writer.flush()
    writer.add(Event(0.0, 2))
    writer.flush()
    assert steps(files(tmp_path)[0]) == [2]


def test_a_closed_writer_refuses_and_can_be_reopened(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.reopen()
    writer.add(Event(0.0, 1))
    writer.close()
    writer.close()
    writer.flush()
    assert writer.closed
    with pytest.raises(RuntimeError, match="reopen"):
        writer.add(Event(0.0, 2))
    writer.reopen()
    assert not writer.closed
    writer.add(Event(0.0, 3))
    writer.close()
    assert [steps(path) for path in files(tmp_path)] == [[1], [3]]


def test_what_waits_for_room_while_the_writer_is_closed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Lazy):
        go_on = threading.Event()

        def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
            super().SerializeToString()
            self.go_on.wait(timeout=30)
            return b""

    def add() -> None:
        with pytest.raises(RuntimeError, match="closed"):
            writer.add(Event(0.0, 3))
        refused.set()

    slow, waits, refused = Slow(), threading.Event(), threading.Event()
    schedule = background.schedule
    writer = EventWriter(tmp_path, max_queue=2, flush_secs=0.001)
    writer.add(Event(0.0, 1, summary=slow))
    assert slow.encoded.wait(timeout=30)
    writer.add(Event(0.0, 2))  # the queue is full: what is being written counts
    monkeypatch.setattr(background, "schedule", lambda *args, **kw: (waits.set(), schedule(*args)))
    threads = [threading.Thread(target=add)]
    threads[0].start()
    assert waits.wait(timeout=30)
    threads.append(threading.Thread(target=writer.close))
    threads[1].start()
    while not writer.closed:
        pass
    slow.go_on.set()
    for thread in threads:
        thread.join()
    assert refused.is_set()
    assert [steps(path) for path in files(tmp_path)] == [[1, 2]]


def test_a_writer_whose_file_was_deleted_is_reopened_with_a_new_one(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "run")
    assert not writer.reopen()
    shutil.rmtree(tmp_path / "run")
    assert writer.reopen()
    writer.add(Event(0.0, 1))
    writer.close()
    assert [steps(path) for path in files(tmp_path / "run")] == [[1]]


def test_flush_all_flushes_every_writer_and_raises_the_first_error(tmp_path: Path) -> None:
    writers = [EventWriter(tmp_path / str(index)) for index in range(4)]
    for index, writer in enumerate(writers):
        error = ValueError(f"poisoned {index}") if index % 2 else None
        writer.add(Event(0.0, 5, summary=Lazy(error)))
    with pytest.raises(ValueError, match="poisoned 1") as raised:
        flush_all()
    assert "ValueError('poisoned 3')" in raised.value.__notes__[-1]
    assert [steps(files(tmp_path / str(index))[0]) for index in range(4)] == [[5], [], [5], []]
    flush_all()
    for writer in writers:
        writer.close()


def test_a_signal_handler_may_flush_anywhere(tmp_path: Path) -> None:
    # In place of signals: each line of ours that the main thread is about to execute is
    # interrupted by a flush, as a signal handler may do it.
    script = """
import faulthandler, sys
from runhooks.events import Event, EventWriter
faulthandler.dump_traceback_later(30, exit=True)
flushes = 0
writer = EventWriter(sys.argv[1], max_queue=2)
def interrupt(frame, kind, argument):
    global flushes
    if "runhooks" not in frame.f_code.co_filename:
        return None
    sys.settrace(None)
    writer.flush()
    sys.settrace(interrupt)
    flushes += 1
    return interrupt
sys.settrace(interrupt)
for step in range(1, 4):
    writer.add(Event(0.0, step))
    writer.flush()
for step in range(4, 9):
    writer.add(Event(0.0, step))
writer.close()
sys.settrace(None)
print(flushes > 50)
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")
    assert [steps(path) for path in files(tmp_path)] == [list(range(1, 9))]


@pytest.mark.parametrize("arguments", [{"max_queue": 0}, {"flush_secs": -1}])
def test_arguments_out_of_range_are_named(tmp_path: Path, arguments: dict[str, int]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name} .*{value}"):
        EventWriter(tmp_path, **arguments)
    assert files(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files there")
def test_a_full_disk_is_one_error_and_leaves_whole_records(tmp_path: Path) -> None:
    # A limit on the size of files is met as a full disk is: in the middle of a write.
    script = """
import resource, signal, sys
from runhooks.events import Event, EventWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = EventWriter(sys.argv[1])
writer.add(Event(0.0, 1, summary=b"x" * 900))
writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
writer.add(Event(0.0, 2, summary=b"x" * 5000))
try:
    writer.flush()
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.add(Event(0.0, 3))
writer.close()
"""
    result = run(script, tmp_path)
    (path,) = files(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    lost = f"the event writer of {str(tmp_path)!r} lost 1 item"
    assert result.stdout == f"[Errno 27] File too large; {lost}: {str(path)!r}\n"
    assert steps(path) == [1, 3]


def test_what_is_pending_at_exit_is_written(tmp_path: Path) -> None:
    script = """
import atexit, sys
from runhooks.events import Event, EventWriter
late = EventWriter(sys.argv[1] + "/late")
atexit.register(lambda: late.add(Event(0.0, 2)))
late.add(Event(0.0, 1))
class Keeper:  # writes when the interpreter is all but gone
    writer = EventWriter(sys.argv[1] + "/last")
    def __del__(self):
        self.writer.reopen()
        self.writer.add(Event(0.0, 3))
        self.writer.close()
keeper = Keeper()
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [steps(path) for path in files(tmp_path / "late")] == [[1, 2]]
    assert [steps(path) for path in files(tmp_path / "last")] == [[3]]


def test_what_is_added_after_the_last_flush_is_written(tmp_path: Path) -> None:
    # Handlers run in the opposite order: this one after that of runhooks.
    script = """
import atexit, sys
atexit.register(lambda: writer.add(Event(0.0, 2)))
from runhooks.events import Event, EventWriter
writer = EventWriter(sys.argv[1])
writer.add(Event(0.0, 1))
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [steps(path) for path in files(tmp_path)] == [[1, 2]]


def test_what_fails_at_exit_is_logged(tmp_path: Path) -> None:
    script = """
import sys
from runhooks.events import Event, EventWriter
class Poisoned:
    def SerializeToString(self):
        raise ValueError("poisoned")
EventWriter(sys.argv[1]).add(Event(0.0, 1, summary=Poisoned()))
"""
    result = run(script, tmp_path)
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("events were lost as the process ended: ValueError: poisoned; while ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys
from runhooks.events import Event, EventWriter
writer, idle = EventWriter(sys.argv[1]), EventWriter(sys.argv[1] + "/idle")
writer.add(Event(0.0, 1))
child = os.fork()
writer.add(Event(0.0, 3 if child else 2))
writer.close()
if not child:
    idle.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(steps(path) for path in files(tmp_path)) == [[1, 3], [2]]
    assert len(files(tmp_path / "idle")) == 1


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_children_of_multiprocessing_lose_nothing(tmp_path: Path, method: str) -> None:
    (tmp_path / "child.py").write_text("""
from runhooks.events import Event, EventWriter
def add(path):
    global writer
    writer = EventWriter(path)
    writer.add(Event(0.0, 2))
""")
    script = """
import multiprocessing, sys
sys.path.insert(0, sys.argv[1])
import child
from runhooks.events import Event, EventWriter
writer = EventWriter(sys.argv[1])
writer.add(Event(0.0, 1))
writer.flush()
process = multiprocessing.get_context(sys.argv[2]).Process(target=child.add, args=(sys.argv[1],))
process.start()
process.join()
assert process.exitcode == 0
"""
    result = run(script, tmp_path, method)
    assert (result.returncode, result.stderr) == (0, "")
    assert [steps(path) for path in files(tmp_path)] == [[1], [2]]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to count files in")
def test_a_thousand_writers_leave_nothing_behind(tmp_path: Path) -> None:
    EventWriter(tmp_path).close()
    threads, open_files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for index in range(1000):
        writer = EventWriter(tmp_path / str(index % 10))
        writer.add(Event(0.0, index))
        writer.close()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    assert len(files(tmp_path / "0")) == 100
